"""Completion scripts for bash, zsh and fish, written from the tree of commands.

They are static: completing asks no Python, and so costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.gateway.completion_tree import Flag, Node

SHELLS = ("bash", "zsh", "fish")


def script(shell: str, root: Node) -> str:
    """The script for one shell."""
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](root)
    return "\n".join(lines) + "\n"


def _paths(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Every command with the words that lead to it."""
    yield path, node
    for child in node.children:
        yield from _paths(child, (*path, child.name))


def _bash(root: Node) -> Iterator[str]:
    yield "# bash completion of tidemill; load it with: source <(tidemill completion bash)"
    yield "_tidemill() {"
    yield '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '  local path="" word at'
    yield "  for ((at = 1; at < COMP_CWORD; at++)); do"
    yield '    word="${COMP_WORDS[at]}"'
    # A command is led to by its words; whatever else stands between does not count.
    yield '    case "$path $word" in'
    for path, _ in _paths(root):
        if path:
            before = "".join(f" {word}" for word in path[:-1])
            yield f'      "{before} {path[-1]}") path="{before} {path[-1]}" ;;'
    yield "    esac"
    yield "  done"
    yield "  COMPREPLY=()"
    yield '  case "$path" in'
    for path, node in _paths(root):
        yield f'    "{"".join(f" {word}" for word in path)}")'
        yield from (f"      {line}" for line in _bash_node(node))
        yield "      ;;"
    yield "  esac"
    yield "}"
    yield "complete -o filenames -F _tidemill tidemill"


def _bash_node(node: Node) -> Iterator[str]:
    yield 'case "$previous" in'
    for flag in node.flags:
        if flag.takes_value:
            found = _bash_words(flag.choices, flag.takes_file)
            yield f"  {'|'.join(flag.names)}) {found} return ;;"
    yield "esac"
    options = " ".join(name for flag in node.flags for name in flag.names)
    yield 'if [[ "$current" == -* ]]; then'
    yield f'  COMPREPLY=($(compgen -W "{options}" -- "$current")); return'
    yield "fi"
    words = tuple(child.name for child in node.children) or node.choices
    if words:
        yield _bash_words(words, False)
    elif node.takes_folder:
        yield 'COMPREPLY=($(compgen -d -- "$current"))'


def _bash_words(choices: tuple[str, ...], takes_file: bool) -> str:
    if choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(choices)}" -- "$current"));'
    return 'COMPREPLY=($(compgen -f -- "$current"));' if takes_file else ""


def _zsh(root: Node) -> Iterator[str]:
    yield "#compdef tidemill"
    yield "# zsh completion of tidemill; load it with: source <(tidemill completion zsh)"
    for path, node in reversed(list(_paths(root))):
        yield from _zsh_function(path, node)
    yield 'if [[ "$funcstack[1]" == _tidemill ]]; then'
    yield '  _tidemill "$@"'
    yield "else"
    yield "  compdef _tidemill tidemill"
    yield "fi"


def _zsh_function(path: tuple[str, ...], node: Node) -> Iterator[str]:
    yield f"{_zsh_name(path)}() {{"
    specs = [spec for flag in node.flags for spec in _zsh_flag(flag)]
    if node.children:
        yield "  local line state commands"
        yield "  commands=("
        for child in node.children:
            yield f"    {_quoted(f'{child.name}:{child.help}')}"
        yield "  )"
        # -C: what follows the command belongs to it alone.
        yield "  _arguments -C \\"
        yield from (f"    {spec} \\" for spec in specs)
        yield "    '1: :->command' '*:: :->rest'"
        yield "  case $state in"
        yield "    command) _describe command commands ;;"
        yield "    rest)"
        yield "      case $line[1] in"
        for child in node.children:
            yield f"        {child.name}) {_zsh_name((*path, child.name))} ;;"
        yield "      esac ;;"
        yield "  esac"
    else:
        yield "  _arguments \\"
        yield from (f"    {spec} \\" for spec in specs)
        if node.choices:
            yield f"    '1: :({' '.join(node.choices)})'"
        else:
            yield "    '*: :_files -/'" if node.takes_folder else "    '*: :_files'"
    yield "}"


def _zsh_name(path: tuple[str, ...]) -> str:
    return "_".join(["_tidemill", *path])


def _zsh_flag(flag: Flag) -> Iterator[str]:
    text = flag.help.replace("[", "(").replace("]", ")").replace(":", "\\:")
    value = ""
    if flag.takes_value:
        action = f"({' '.join(flag.choices)})" if flag.choices else ""
        value = f":value:{action or ('_files' if flag.takes_file else '')}"
    for name in flag.names:
        yield _quoted(f"{name}[{text}]{value}")


def _fish(root: Node) -> Iterator[str]:
    yield "# fish completion of tidemill; load it with: tidemill completion fish | source"
    yield "function __tidemill_at"
    yield "    set -l path"
    yield "    set -l words (commandline -opc)"
    yield "    for word in $words[2..-1]"
    yield '        switch "$path $word"'
    for path, _ in _paths(root):
        if path:
            before = "".join(f" {word}" for word in path[:-1])
            yield f'            case "{before} {path[-1]}"'
            yield f'                set path "{before} {path[-1]}"'
    yield "        end"
    yield "    end"
    yield '    test "$path" = "$argv[1]"'
    yield "end"
    yield "complete -c tidemill -f"
    for path, node in _paths(root):
        where = f"""-n '__tidemill_at "{"".join(f" {word}" for word in path)}"'"""
        for child in node.children:
            yield f"complete -c tidemill {where} -a {child.name} -d {_quoted(child.help)}"
        if node.choices:
            yield f"complete -c tidemill {where} -a '{' '.join(node.choices)}'"
        elif node.takes_folder:
            yield f"complete -c tidemill {where} -a '(__fish_complete_directories)'"
        for flag in node.flags:
            yield f"complete -c tidemill {where} {_fish_flag(flag)}"


def _fish_flag(flag: Flag) -> str:
    parts = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names]
    if flag.takes_value:
        parts.append("-r" if flag.choices or flag.takes_file else "-x")
    if flag.choices:
        parts.append(f"-f -a '{' '.join(flag.choices)}'")
    elif flag.takes_file:
        parts.append("-F")
    return " ".join([*parts, f"-d {_quoted(flag.help)}"])


def _quoted(text: str) -> str:
    """In single quotes, for all three shells."""
    return "'" + text.replace("'", "’") + "'"
