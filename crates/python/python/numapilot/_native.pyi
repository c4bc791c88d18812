"""The native half of the package. Times are nanoseconds of program time since the recording's start; shares lie between 0 and 1."""

import os
import sys
from collections.abc import Iterator, KeysView, Sequence
from types import TracebackType
from typing import Any, Generic, SupportsIndex, TypeVar, final, overload

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
    """What went wrong: `code` is one of numapilot.Code, the text says the rest."""

    code: int

class ClosedError(Error):
    """The trace was closed."""

def open(path: str | os.PathLike[str]) -> Trace:
    """Opens a trace: the folder that `numapilot record` wrote. If its recorder was killed, the tables are made first, in the folder."""

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
    """Rows in turn."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _Row: ...

@final
class Trace:
    """An open trace. `len()`: sampled accesses."""

    def close(self) -> None:
        """Closes the trace. Objects, flows and streams that were handed out keep what they need."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: type[BaseException] | BaseException | TracebackType | None) -> None: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def path(self) -> os.PathLike[str]: ...
    @property
    def meta(self) -> dict[str, Any]:
        """meta.json (docs/trace-format.md)."""
    @property
    def losses(self) -> dict[str, int]:
        """What got lost or stayed unknown."""
    @property
    def engine(self) -> str: ...
    @property
    def command(self) -> list[str]: ...
    @property
    def is_simulated(self) -> bool:
        """Machine, page homes and program time are simulated, not measured."""
    @property
    def duration_ns(self) -> int: ...
    @property
    def line_sampling(self) -> int:
        """One cache line in so many was simulated; 1: all."""
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
        """Accesses in order of program time. With `object` alone, that object's Object Event Flow; with `thread` alone, that thread's Thread Event Flow."""
    def accesses(self, columns: Sequence[str] | None = None, **filter: Unpack[Filter]) -> Table:
        """The same in bulk: what pandas, Polars, DuckDB and pyarrow take as it is."""
    def table(self, name: str) -> Table:
        """A table as it lies on disk: accesses, objects, threads, processes, modules, stacks, frames, placements, counters, counters_by_home, syncs,
        losses, marks."""
    def statistics(self, **filter: Unpack[Filter]) -> Statistics:
        """Figures over what the filter lets pass, with their 95 % intervals."""
    def report(self, top: int = 20, **filter: Unpack[Filter]) -> Document:
        """The report (`numapilot report --json`): headline, sites, matrix, links."""
    def detail(self, name: str, **filter: Unpack[Filter]) -> Document:
        """One object in detail: a name, "S3" for a site, "17" for an instance."""
    def findings(self) -> Document:
        """What is wrong, on what evidence, and what a fix would gain. Predicted."""
    def whatif(
        self, homes: dict[str, str], *, machine: Machine | None = None, seed: int = 1, progress: Progress = None
    ) -> Document:
        """What other homes for some objects would gain: `whatif({"block": "interleave"})`. Predicted, as findings are. Homes: interleave,
        weights:0*3+1*1, bind:N, replicate, users, local, arenas, first-touch, hand-over, near, spread, align; {"processes": "pin"} and {"threads": "pin"}.
        On another `machine` it is simulated, with this seed. `progress`: a function of the share that is done, or True for text on stderr."""
    def picture(self, view: View = "traffic", *, object: str | None = None, **filter: Unpack[Where]) -> Picture:
        """A picture of the report."""
    def _repr_html_(self) -> str: ...

@final
class Object:
    """An object instance. `len()`: sampled accesses to it."""

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
        """Its Object Event Flow."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...

@final
class Site:
    """What instances from one place in the source share: an object type."""

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
        """All accesses to its instances."""

@final
class Thread:
    """A thread. `len()`: sampled accesses that it made."""

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
        """All its memory accesses, counted; None where the engine does not count."""
    def flow(self) -> Flow:
        """Its Thread Event Flow."""
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
        """All accesses of its threads."""

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
        """None: node or home is unknown."""
    @property
    def is_write(self) -> bool: ...
    @property
    def is_atomic(self) -> bool: ...
    @property
    def is_range(self) -> bool: ...
    @property
    def is_memory_access(self) -> bool:
        """False: one of the core's own caches answered."""
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
        """Memory accesses for which it stands."""

@final
class Flow:
    """An iterator over accesses. One thread at a time may advance it."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Access: ...
    def count(self) -> int:
        """Counts what is in the flow from its beginning, without making objects of Python."""

@final
class Table:
    """Something that Arrow's consumers can read, as often as they like: `pandas.DataFrame.from_arrow(table)`, `polars.DataFrame(table)`,
    `pyarrow.table(table)`, `duckdb.sql("from table")`."""

    @property
    def columns(self) -> list[str]: ...
    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...
    def _repr_html_(self) -> str: ...

@final
class Estimate:
    """A figure with its 95 % interval; a point where nothing was left out."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    def __float__(self) -> float: ...

@final
class Statistics:
    """Figures over some accesses."""

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
    """An answer: `data` for programs, text for people."""

    @property
    def data(self) -> dict[str, Any]: ...
    def __getitem__(self, key: str, /) -> Any: ...
    def __contains__(self, key: object, /) -> bool: ...
    def keys(self) -> KeysView[str]: ...
    def _repr_html_(self) -> str: ...

@final
class Picture:
    """A picture."""

    @property
    def svg(self) -> str: ...
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it; the file appears whole or not at all."""
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
        """What the traffic model (docs/traffic-model.md) says of a load. Predicted. `copies`: (from node, to node, bytes per second). `path_ns` and
        `marginal_ns` are by the order of `nodes`."""
