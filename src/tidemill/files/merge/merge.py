"""The merge of one bucket for one fork: overlapping frames come out as one sorted sequence.

    pending   frames not in memory, by the (key, seq) of their first row
    loaded    runs in memory whose rows interleave with others
    layers    rows of more frames than memory holds, by ranges of keys; see `layers`
    windows   runs sorted against everything known when they were made; pops take slices of them
    late      frames pushed since, far or near; see `late`

    ┌─────────┐  load   ┌────────┐  window of some 64 K rows  ┌─────────┐   pop
    │ pending │ ──────▶ │ loaded │ ─────────────────────────▶ │ windows │ ───────▶ slices
    └─────────┘         └────────┘                            └─────────┘     ▲
         ▲ when a new window is made                 ┌─────┐   ┌──────┐       │
         └────────────────────────────────────────── │ far │ ─▶│ near │ ──────┘
                                                     └─────┘   └──────┘
A pop merges in just the rows of near frames that it needs. Once these are many, they become one
run; where that has many rows, the first rows of the windows are merged with them into a small
window of its own.

Pure but for its loader. A frame that overlaps no other becomes a window as it is, without a copy.
Frames are loaded in the order of their first rows until enough rows lie below the first row of the
rest; where that takes more memory than allowed, a pass over the frames fills layers, each of which
becomes a window: the next one is sorted by another thread meanwhile.

Invariant: every row outside the windows is greater than the last row of the windows, except rows of
late frames; the window that is being sorted comes before all others but these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter

from tidemill.files.format.frame_table import Entry, FrameList
from tidemill.files.merge.choice import Choice, choice_in, choose_from
from tidemill.files.merge.late import Late
from tidemill.files.merge.layers import Layers
from tidemill.files.merge.loader import Loader
from tidemill.files.merge.pending import BEYOND, CHUNK_FRAMES, Loaded, Source
from tidemill.files.merge.quantiles import quantiles
from tidemill.files.merge.run import Run, merged, parts_until
from tidemill.files.merge.sorted_ahead import SortedAhead, release_unused
from tidemill.limits import INT64_MAX, MERGE_BYTES_MAX, WINDOW_ROWS

_REFINED_ROWS = 32_768  # of a window that late rows were merged into
_ROWS_PER_RUN = 128  # that a window takes from each run, or touching the runs costs too much
_SAMPLED_FRAMES = 16  # at least, to tell how many rows lie where
_SMALL_ROWS = 256  # fewer than this are not worth a run of their own
_SMALL_BYTES = 256 * 1024
_SMALL_RUNS_MAX = 32
_MORE_FRAMES = 64  # read at once at most, where frames overlap: more may not be needed yet
_AHEAD_ROWS = 2048  # made ready at first where frames overlap; twice as many each time
_NUMBERS_BYTES = 17  # that a seq and a time take beside the row of a frame, and one for rounding
_head = itemgetter(0)


class Merge:
    """All live rows of a bucket, in order."""

    def __init__(
        self,
        frames: FrameList,
        load: Callable[[list[Entry]], list[Run]],
        *,
        # For frames of one item each, which need not be loaded one by one; None if they have to be.
        load_ones: Callable[[list[Entry]], Run | None] = lambda _entries: None,
        bytes_max: int = MERGE_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._loader = Loader(frames, load, load_ones, bytes_max=bytes_max)
        self._pending = self._loader.pending
        self._loaded: list[Loaded] = []
        self._layers = Layers()
        self._ahead_rows = _AHEAD_ROWS
        self._windows: list[Run] = []
        self._ahead: SortedAhead | None = None  # the window behind those
        self._late = Late(bytes_max)
        self._ready: Choice | None = None  # what comes next, if no more and no less is wanted

    def add(self, sources: Iterable[Source]) -> None:
        """Take note of frames that were pushed after the merge was opened."""
        self._late.add(sources)

    @property
    def is_oversized(self) -> bool:
        """Whether late rows that nobody has popped yet take up too much of the windows: whoever
        opens the merge anew finds them on disk.
        """
        # The last one is what the others were put before, and may be a single frame of any size.
        before_last = self._windows[:-1]
        return sum([window.nbytes for window in before_last]) > self._bytes_max // 2

    @property
    def is_empty(self) -> bool:
        """Whether no row is left, as far as is known without loading."""
        held = self._windows or self._ahead or self._loaded or self._late
        return not (held or len(self._layers) or self._pending)

    def choose(self, rows: int, key_max: int, *, bytes_max: int | None = None) -> Choice | None:
        """The next `rows` rows with keys up to `key_max`, or as many as there are; None if there
        are none. `bytes_max`: no more than about so many bytes are put together, unless frames are
        added to the merge.
        """
        windows, late = self._windows, self._late
        if windows or self._extend_windows(rows, key_max):
            # The common case by far: what is wanted lies in one window, and before all late rows.
            run = windows[0]
            start = run.position
            stop = start + rows
            if (
                stop <= run.rows
                and key_max == INT64_MAX
                and not late.near
                and (not late.far or run.last < late.far[0][:2])
            ):
                ready = self._ready
                if ready is not None and ready.rows == rows and ready.moves == [(run, stop)]:
                    return ready
                return choice_in(run, start, stop)
        if late:
            slices = self._slices_with_late(rows, key_max)
        else:
            slices = self._slices(rows, key_max, bytes_max)[0]
        slices = [found for found in slices if found[2] > found[1]]
        if not slices:
            return None
        return choose_from(slices, rows)

    def choose_piece(self, rows: int) -> Choice | None:
        """The next rows that lie together in memory, at most `rows`: nothing is copied for them.
        Not for a merge that frames are added to.
        """
        if not self._windows and not self._extend_windows(rows, INT64_MAX):
            return None
        window = self._windows[0]
        return choose_from([(window, window.position, window.rows)], rows)

    def advance(self, choice: Choice) -> None:
        """Drop the rows of a choice: they are consumed."""
        for run, position in choice.moves:
            run.position = position
        windows = self._windows
        while windows and windows[0].position == windows[0].rows:
            windows.pop(0)
        if self._late.near:
            self._late.drop_used()
        # Who takes so many mostly does it again. Now the disk may be at work, and it costs nothing.
        self._ready = None
        if windows and len(choice.moves) == 1:
            run = windows[0]
            start, stop = run.position, run.position + choice.rows
            if stop <= run.rows:
                self._ready = choice_in(run, start, stop)

    def _slices(
        self, rows: int, key_max: int, bytes_max: int | None = None
    ) -> tuple[list[tuple[Run, int, int]], int]:
        """(parts of the windows that hold the next rows, how many that is)."""
        slices: list[tuple[Run, int, int]] = []
        count = size = 0
        position = 0
        while count < rows:
            if position == len(self._windows) and not self._extend_windows(rows - count, key_max):
                break
            run = self._windows[position]
            position += 1
            stop = min(run.rows, run.position + rows - count)
            if bytes_max is not None:
                size += run.body.slice(run.position, stop - run.position).nbytes
                if slices and size > bytes_max:
                    break
            if run.row(stop - 1)[0] > key_max:
                stop = run.until(key_max, INT64_MAX)
                slices.append((run, run.position, stop))
                return slices, count + stop - run.position
            slices.append((run, run.position, stop))
            count += stop - run.position
        return slices, count

    def _take_back_windows(self) -> None:
        """Make the rest of the windows ordinary runs, so that new windows can be made of all."""
        self._loaded += [Loaded(window, None) for window in self._windows]
        self._windows.clear()
        self._ready = None
        if self._ahead is not None:
            self._loaded.append(Loaded(self._ahead.wait(), None))
            self._ahead = None

    def _slices_with_late(self, rows: int, key_max: int) -> list[tuple[Run, int, int]]:
        """Parts of the windows and of near frames among which the next rows are."""
        if self._ahead is None and sum([len(window) for window in self._windows]) < rows:
            self._take_back_windows()
        slices, last = self._reach(rows, key_max)
        if self._windows and self._late.is_crowded:
            self._refine(rows)
            slices, last = self._reach(rows, key_max)
        # No run gives more rows than are wanted in all, however many of its rows are urgent.
        return slices + [
            (run, run.position, min(run.until(*last), run.position + rows))
            for run, _ in self._late.near
        ]

    def _reach(self, rows: int, key_max: int) -> tuple[list[tuple[Run, int, int]], tuple[int, int]]:
        """(parts of the windows, the row that the next ones are not beyond); late frames that reach
        below it come near.
        """
        while True:
            slices, count = self._slices(rows, key_max)
            last = slices[-1][0].row(slices[-1][2] - 1) if count == rows else (key_max, INT64_MAX)
            if self._late.draw_near(last, self._loader.read):
                return slices, last
            # So many frames are no exception to look at beside the windows: these are made anew.
            self._take_back_windows()

    def _refine(self, rows: int) -> None:
        """Make near frames few again, so that the next pops need not look at each of them: by
        joining their rows or, where these are many, by merging the first rows of the windows with
        them into a window of its own.
        """
        late = self._late
        last = self._windows[-1].last
        if late.draw_near(last, self._loader.read) and (rest := late.join(last)) is not None:
            late.put_off(rest)
            return
        first = self._windows[0]
        # Of large rows fewer, or a window that they are merged into again and again would grow.
        refined = min(_REFINED_ROWS, self._bytes_max // 16 * first.rows // first.nbytes)
        stop = min(first.rows, first.position + max(rows, refined, 1))
        limit = first.row(stop - 1)
        if not late.draw_near(limit, self._loader.read):
            self._take_back_windows()
            return
        near = late.take_near()
        window = merged(parts_until([first, *[run for run, _ in near]], limit))[0]
        self._windows[:1] = [window, first] if len(first) else [window]
        late.put_off([loaded for loaded in near if len(loaded.run)])

    def _extend_windows(self, wanted: int, key_max: int) -> bool:
        """Make a window of the next rows in order, or several; False if there are none up to
        `key_max`.
        """
        if self._ahead is not None:
            self._windows.append(self._ahead.wait())
            self._ahead = None
            self._begin_ahead()
            return True
        if not self._windows:
            # Behind a window that stands, late frames cannot be: their rows may belong before it.
            self._absorb_late()
        if not self._loaded:
            self._loader.look_further_ahead()
            if not len(self._layers) and (runs := self._loader.whole_frames(key_max)):
                self._windows += runs
                return True
        wanted = min(wanted, WINDOW_ROWS)
        if not len(self._layers) and not self._load_enough(wanted, key_max):
            self._fill_layers()
        if len(self._layers):
            self._windows.append(merged(self._next_layer())[0])
            self._begin_ahead()
            return True
        if not self._loaded:
            return False
        if self._pass_whole_runs():
            return True
        run = self._loaded[0].run
        if run.head[0] > key_max:
            return False
        if len(self._loaded) == 1:
            bound = self._pending.head
            start, run.position = run.position, run.until(bound[0], bound[1] - 1)
            self._windows.append(run.part(start, run.position))
        else:
            self._windows.append(self._merge_window(wanted, self._pending.head))
        return True

    def _pass_whole_runs(self) -> bool:
        """Make windows of the first runs that end before the next one begins, as they are."""
        ordered = sorted([(loaded.run.head, loaded) for loaded in self._loaded], key=_head)
        pending = self._pending.head
        heads = [head for head, _ in ordered[1:]] + [pending]
        self._loaded = [loaded for _, loaded in ordered]
        count = 0
        for (run, _), head in zip(self._loaded, heads, strict=True):
            last = run.last
            if last >= head or last >= pending:
                break
            self._windows.append(run)
            count += 1
        del self._loaded[:count]
        return count > 0

    def _begin_ahead(self) -> None:
        """Let the next layer be sorted while the windows are used up, if there is one, and late
        rows that belong to it can join it.
        """
        last = self._windows[-1].last
        if not len(self._layers) or not self._late.draw_near(last, self._loader.read):
            return
        rest = self._late.join(last)
        if rest is not None:
            self._loaded += rest
            self._absorb_far()
            self._ahead = SortedAhead(self._next_layer())

    def _absorb_late(self) -> None:
        """Make late frames ordinary ones, now that a new window is due."""
        self._absorb_far()
        self._loaded += self._late.take_near()

    def _absorb_far(self) -> None:
        """Make late frames ordinary ones that no row of the windows comes behind.

        Where there are no layers, what is loaded must be what comes first: it stands for the rest
        when layers are made, and what it holds at the far end of a long queue would have all of
        the queue read into one of them.
        """
        before = None if len(self._layers) else self._pending.head
        unread, held = self._late.take_far(before)
        self._pending.push_all(unread)
        self._loaded += held

    def _load_enough(self, wanted: int, key_max: int) -> bool:
        """Load pending frames until `wanted` rows lie below the first row of the others; False if
        that takes too much memory: then layers do with less.

        Where frames overlap, every window costs a look at each of them, so ever more rows are made
        ready at a time: else each frame that begins a little further on would end a window.
        """
        chunk = self._loader.frames_ahead
        ahead_rows = max(wanted, self._ahead_rows)
        while self._pending and self._pending.head[0] <= key_max:
            if self._loaded:
                ready, beyond = self._rows_ready()
                if ready >= wanted:
                    if not beyond:
                        return True
                    if ready >= ahead_rows or self._held_bytes() > self._bytes_max // 2:
                        self._ahead_rows = min(2 * ahead_rows, WINDOW_ROWS)
                        return True
                elif len(self._loaded) > 1 and self._held_bytes() > self._bytes_max // 4:
                    return False
            # However many frames are read at once, they must not be more than memory allows.
            self._loaded += self._loader.next_frames(chunk, self._bytes_max // 4)
            self._join_small_runs()
            chunk = min(2 * chunk, _MORE_FRAMES)
        return True

    def _rows_ready(self) -> tuple[int, int]:
        """How many loaded rows lie below the first one that is pending, and how many beyond it."""
        key, seq = self._pending.head
        ready = left = 0
        for run, _ in self._loaded:
            # A run that ends before the others begin need not be looked at.
            stop = run.rows if run.last < (key, seq) else run.until(key, seq - 1)
            ready += stop - run.position
            left += run.rows - run.position
        return ready, left - ready

    def _join_small_runs(self) -> None:
        """Make one run of many small ones: every step that follows looks at each run there is."""
        if len(self._loaded) <= _SMALL_RUNS_MAX:
            return
        small: list[Run] = []
        others: list[Loaded] = []
        for loaded in self._loaded:
            if _is_small(loaded.run):
                small.append(loaded.run)
            else:
                others.append(loaded)
        if len(small) > _SMALL_RUNS_MAX:
            joined = merged([(run, run.position, run.rows) for run in small])[0]
            self._loaded = [*others, Loaded(joined, None)]

    def _held_bytes(self) -> int:
        return sum([run.nbytes for run, _ in self._loaded])

    def _merge_window(self, wanted: int, bound: tuple[int, int]) -> Run:
        """Merge the least rows of all loaded runs, about as many as a window takes."""
        rows = max(wanted, WINDOW_ROWS, min(_ROWS_PER_RUN * len(self._loaded), 2 * WINDOW_ROWS))
        limit = self._limit(rows, bound)
        window = merged(parts_until([run for run, _ in self._loaded], limit))[0]
        self._loaded = [loaded for loaded in self._loaded if len(loaded.run)]
        return window

    def _limit(self, rows: int, bound: tuple[int, int]) -> tuple[int, int]:
        """A row below `bound` up to which the loaded runs hold about `rows`, and some anyway."""
        limits = quantiles([run for run, _ in self._loaded], rows, 1)
        return min([(bound[0], bound[1] - 1), *limits])

    def _fill_layers(self) -> None:
        """Make layers from more frames than memory holds: each is read, gives its least rows, and
        goes.
        """
        rows = sum(len(run) for run, _ in self._loaded)
        row_bytes = sum(run.nbytes for run, _ in self._loaded) // rows + _NUMBERS_BYTES
        most = max(self._bytes_max * 3 // 4 // row_bytes, 1)
        layer_rows = min(most, WINDOW_ROWS)
        # What is loaded stands for all that begins before the last row that could be among them.
        runs = [run for run, _ in self._loaded]
        (last,) = quantiles(runs, most, 1) or [max(run.last for run in runs)]
        overlapping = len(runs) + self._pending.count_until(last[0])
        if self._loader.is_worn and len(runs) < _SAMPLED_FRAMES:
            # They were the first to be used, and may have fewer rows than others where these begin.
            room = self._bytes_max // 4 // max(self._pending.length, 1)
            more = self._pending.sample(min(_SAMPLED_FRAMES - len(runs), room), last[0])
            runs += [run for run, _ in self._loader.read(more)]
        share = len(runs) / overlapping
        limits = quantiles(runs, max(int(layer_rows * share), 1), most // layer_rows)
        self._layers.begin(limits or [BEYOND])
        loaded, self._loaded = self._loaded, []
        while loaded:
            some = loaded[:CHUNK_FRAMES]
            del loaded[:CHUNK_FRAMES]
            self._spread(some)
            del some
            # Freed blocks of one size serve no other, and would pile up beside the new ones.
            release_unused()

    def _spread(self, loaded: list[Loaded]) -> None:
        """Move the rows of these runs to the layers; what is beyond them is read again later."""
        has_room = self._layers.bytes < self._bytes_max
        # Where there is none, the least must do for the window that is due.
        layers_max = None if has_room else 1
        self._layers.take_from([run for run, _ in loaded], layers_max=layers_max)
        for run, entry in loaded:
            if len(run) and entry is not None:
                self._pending.push(Source(*run.head, entry))
            elif len(run):
                self._loaded.append(Loaded(run, None))

    def _next_layer(self) -> list[tuple[Run, int, int]]:
        """All rows up to the first limit, unsorted, as parts to be merged."""
        loaded, self._loaded = self._loaded, []
        self._spread(loaded)
        limit = self._layers.first_limit
        while self._pending and self._pending.head <= limit:
            self._spread(self._loader.next_frames(CHUNK_FRAMES, self._bytes_max // 16))
        return [(piece, 0, piece.rows) for piece in self._layers.pop()]


def _is_small(run: Run) -> bool:
    return len(run) < _SMALL_ROWS and run.nbytes <= _SMALL_BYTES
