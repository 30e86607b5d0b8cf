"""The ways in from outside Python code: parse, call, render, and nothing else.

command_line   the command `tidemill`: arguments in, `exit_status` out
command        what a command is; `arguments` and `tls_arguments` are what several share
commands       one module for each
console        where a command speaks, to the `standard_streams`; `output` is where rows go
opening        from arguments to a queue; `log_opening` and `ring_opening` to the others
refusal        what the command line itself refuses
interrupts     Ctrl-C and SIGTERM, between steps; `sync_behind` syncs between them
rows           rows as text and files, in and out; `ring_entries` are those of rings
http           counters and metrics over HTTP
spark_job      a job on Spark as a command, in a `spark_session`
pipeline_running   pipelines, with bars
completion_tree    what shells can complete; `completion_script` says it to them
measurement    `tidemill bench`, against a `disk_floor`
main_job, demo     `tidemill demo`
web_page, drawing, profile_report, result_file   results to look at, and where they go
"""
