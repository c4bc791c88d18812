"""The native module of the package. Times are nanoseconds of program time since the recording's start; shares are between 0 and 1."""

import os
import sys
from collections.abc import Iterator, KeysView, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, SupportsIndex, TypeVar, final, overload

from .typing import Filter, Kind, Progress, TrafficClass, View, Where

if sys.version_info >= (3, 11):
    from typing import Self, Unpack
else:
    from typing_extensions import Self, Unpack

__all__ = [
    "Access",
    "ClosedError",
    "Document",
    "Error",
    "Estimate",
    "Flow",
    "Frame",
    "Machine",
    "Object",
    "Picture",
    "Process",
    "Rows",
    "RowsIterator",
    "Site",
    "Statistics",
    "Table",
    "Thread",
    "Trace",
    "__version__",
    "machines",
    "open",
]

__version__: str

class Error(Exception):
    """An error: `code` is one of numapilot.Code, and the text is the message."""

    code: int

class ClosedError(Error):
    """The trace was closed."""

def open(path: str | os.PathLike[str]) -> Trace:
    """Opens a trace: the folder that `numapilot record` wrote. If its recorder was killed, this first writes the tables into the folder."""

def machines() -> list[str]:
    """Names of the built-in machine models."""

_Row = TypeVar("_Row", covariant=True)

@final
class Rows(Generic[_Row]):
    """A sequence of rows, by number."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: SupportsIndex, /) -> _Row: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[_Row]: ...
    def __iter__(self) -> RowsIterator[_Row]: ...

@final
class RowsIterator(Iterator[_Row]):
    """Iterator over a sequence of rows."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _Row: ...

@final
class Trace:
    """An open trace. `len()` is the number of sampled accesses."""

    def close(self) -> None:
        """Closes the trace. Objects, flows and streams of it keep the data that they need, and still work."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: type[BaseException] | BaseException | TracebackType | None) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def path(self) -> os.PathLike[str]:
        """The trace's folder, as an absolute path."""
    @property
    def meta(self) -> dict[str, Any]:
        """The content of meta.json (docs/trace-format.md)."""
    @property
    def losses(self) -> dict[str, int]:
        """Counts of records that were lost, and of facts that are unknown, by cause."""
    @property
    def engine(self) -> str: ...
    @property
    def evidence(self) -> Literal["accesses", "page-faults", "none"]:
        """What the samples are evidence of. If not "accesses", no figure about accesses is known: statistics are NaN."""
    @property
    def command(self) -> list[str]: ...
    @property
    def is_simulated(self) -> bool:
        """Whether the machine, home nodes and program time are simulated rather than measured."""
    @property
    def duration_ns(self) -> int: ...
    @property
    def line_sampling(self) -> int:
        """One cache line in this many was simulated; 1: all."""
    @property
    def nodes(self) -> list[int]: ...
    @property
    def machine(self) -> Machine | None: ...
    @property
    def objects(self) -> Rows[Object]: ...
    @property
    def sites(self) -> Rows[Site]: ...
    @property
    def threads(self) -> Rows[Thread]: ...
    @property
    def processes(self) -> Rows[Process]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def stack(self, number: int) -> list[Frame]:
        """A call stack's functions, innermost first, inlined ones before those that they were inlined into."""
    def location(self, number: int) -> list[Frame]:
        """The functions at a code address."""
    def flow(self, **filter: Unpack[Filter]) -> Flow:
        """The accesses that pass the filter, in order of program time. With `object` alone, that object's Object Event Flow; with `thread` alone, that
        thread's Thread Event Flow."""
    def accesses(self, columns: Sequence[str] | None = None, **filter: Unpack[Filter]) -> Table:
        """The accesses that pass the filter, in bulk: pandas, Polars, DuckDB and pyarrow import the table."""
    def table(self, name: str) -> Table:
        """A table as stored on disk: accesses, objects, threads, processes, modules, stacks, frames, placements, counters, counters_by_home, syncs,
        losses, marks."""
    def statistics(self, **filter: Unpack[Filter]) -> Statistics:
        """Figures over the accesses that pass the filter, with their 95 % intervals."""
    def report(self, top: int = 20, **filter: Unpack[Filter]) -> Document:
        """The report (`numapilot report --json`): headline, sites, matrix, links."""
    def detail(self, name: str, **filter: Unpack[Filter]) -> Document:
        """One object in detail: a name, "S3" for a site, "17" for an instance."""
    def findings(self) -> Document:
        """The findings: each problem with its evidence, and the predicted gain of its fix."""
    def whatif(
        self, homes: dict[str, str], *, machine: Machine | None = None, seed: int = 1, progress: Progress = None
    ) -> Document:
        """The predicted gain of other home nodes for some objects: `whatif({"block": "interleave"})`. Homes: interleave,
        weights:0*3+1*1, bind:N, replicate, users, local, arenas, first-touch, hand-over, near or tier:fast, spread, align; {"processes": "pin"} and
        {"threads": "pin"}. With `machine`, the run on that machine is simulated, with this seed. `progress`: a function that takes the share that is
        done (0 to 1), or True for text on stderr."""
    def picture(self, view: View = "traffic", *, object: str | None = None, **filter: Unpack[Where]) -> Picture:
        """A picture of the report."""
    def _repr_html_(self) -> str: ...

@final
class Object:
    """An object instance. `len()` is the number of sampled accesses to it."""

    @property
    def number(self) -> int: ...
    @property
    def site(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def name(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def module(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def process(self) -> int: ...
    @property
    def thread(self) -> int | None:
        """Thread that allocated it."""
    @property
    def cpu(self) -> int | None: ...
    @property
    def node(self) -> int | None: ...
    @property
    def birth_ns(self) -> int: ...
    @property
    def death_ns(self) -> int | None: ...
    @property
    def stack(self) -> int: ...
    def flow(self) -> Flow:
        """The object's accesses in order of program time: its Object Event Flow."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...

@final
class Site:
    """A site (object type): what the objects from one place in the source share."""

    @property
    def number(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def name(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def module(self) -> str: ...
    def flow(self) -> Flow:
        """The accesses to all its instances, in order of program time."""

@final
class Thread:
    """A thread. `len()` is the number of its sampled accesses."""

    @property
    def number(self) -> int: ...
    @property
    def process(self) -> int: ...
    @property
    def tid(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def start_function(self) -> str: ...
    @property
    def parent(self) -> int | None: ...
    @property
    def cpu(self) -> int | None: ...
    @property
    def node(self) -> int | None: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int | None: ...
    @property
    def stack_object(self) -> int | None: ...
    @property
    def memory_accesses(self) -> int | None:
        """Number of all its memory accesses, whether sampled or not; None if the engine does not count."""
    def flow(self) -> Flow:
        """The thread's accesses in order of program time: its Thread Event Flow."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...

@final
class Process:
    """A process image."""

    @property
    def number(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def parent(self) -> int | None: ...
    @property
    def exe(self) -> str: ...
    @property
    def arguments(self) -> list[str]: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int | None: ...
    def flow(self) -> Flow:
        """The accesses of all its threads, in order of program time."""

@final
class Frame:
    """A function at a code address."""

    @property
    def function(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def is_inlined(self) -> bool: ...
    @property
    def module(self) -> str: ...

@final
class Access:
    """One sampled access."""

    @property
    def row(self) -> int: ...
    @property
    def time_ns(self) -> int: ...
    @property
    def thread(self) -> int: ...
    @property
    def object(self) -> int | None: ...
    @property
    def address(self) -> int: ...
    @property
    def cpu(self) -> int | None: ...
    @property
    def node(self) -> int | None: ...
    @property
    def home(self) -> int | None: ...
    @property
    def is_remote(self) -> bool | None:
        """Whether node and home differ; None if node or home is unknown."""
    @property
    def is_write(self) -> bool: ...
    @property
    def is_atomic(self) -> bool: ...
    @property
    def is_range(self) -> bool: ...
    @property
    def is_memory_access(self) -> bool:
        """False if one of the core's own caches served it."""
    @property
    def level(self) -> int: ...
    @property
    def latency_cycles(self) -> int | None: ...
    @property
    def location(self) -> int: ...
    @property
    def stack(self) -> int: ...
    @property
    def weight(self) -> int:
        """Number of memory accesses that the sample represents."""

@final
class Flow:
    """An iterator over accesses. One thread at a time may advance it."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Access: ...
    def count(self) -> int:
        """Number of accesses in the whole flow, counted without making Python objects."""

@final
class Table:
    """A table that Arrow consumers can import, any number of times: `pandas.DataFrame.from_arrow(table)`, `polars.DataFrame(table)`,
    `pyarrow.table(table)`, `duckdb.sql("from table")`."""

    @property
    def columns(self) -> list[str]: ...
    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...
    def _repr_html_(self) -> str: ...

@final
class Estimate:
    """A figure with its 95 % interval; the interval is a point if the figure was counted and not sampled."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    def __float__(self) -> float: ...

@final
class Statistics:
    """Figures over the accesses that pass a filter. NaN is unknown: `remote` where no home node is known; every estimate of a recording that holds no accesses."""

    @property
    def samples(self) -> int: ...
    @property
    def remote_samples(self) -> int: ...
    @property
    def write_samples(self) -> int: ...
    @property
    def accesses(self) -> Estimate: ...
    @property
    def remote(self) -> Estimate: ...
    @property
    def writes(self) -> Estimate: ...
    @property
    def share(self) -> Estimate: ...

@final
class Document:
    """A result: `data` as dictionaries and lists, and the same as text (`str()`)."""

    @property
    def data(self) -> dict[str, Any]: ...
    def __getitem__(self, key: str, /) -> Any: ...
    def __contains__(self, key: object, /) -> bool: ...
    def keys(self) -> KeysView[str]: ...
    def _repr_html_(self) -> str: ...

@final
class Picture:
    """A picture in SVG."""

    @property
    def svg(self) -> str: ...
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the SVG to a file, atomically: the file is complete, or is not changed."""
    def _repr_svg_(self) -> str: ...

@final
class Machine:
    """A machine: its nodes, CPUs, memory and links."""

    @staticmethod
    def load(name: str) -> Machine:
        """A built-in model by name, or a model file by path."""
    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> list[int]: ...
    @property
    def data(self) -> dict[str, Any]: ...
    def traffic(self, classes: Sequence[TrafficClass], *, copies: Sequence[tuple[int, int, float]] = ...) -> Document:
        """Latencies and rates that the traffic model (docs/traffic-model.md) predicts for a load. `copies`: (from node, to node, bytes per second).
        `path_ns` and `marginal_ns` are in the order of `nodes`."""
