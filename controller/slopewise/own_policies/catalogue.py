"""Finds a policy by its name: among the shipped ones, in files and folders of the user's, and in installed packages.

The shipped ones come first and cannot be replaced. Then, by the file's name or the entry point's:

- a file that was named by its path (`--policy ./mine.py`, or in a document of this machine),
- the `.py` files of the folders in `SLOPEWISE_POLICIES` (or `--policies-dir`), those that begin with `_` left out,
- the modules that installed packages announce as entry points in the group `slopewise.policies`.

Only a named policy is loaded, so that a mistake in one file does not affect the others. Paths are accepted on the
command line and in files of this machine, never in a TrainingPolicy of a cluster: its author must not choose the code
that the controller executes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from slopewise import policies
from slopewise.composition import parts_of
from slopewise.errors import UsageError
from slopewise.model import Objectives
from slopewise.own_policies.loading import is_policy_name, load_file, load_package, policy_name
from slopewise.policies import PolicyFile, PolicyParameters, PolicyProtocol, Setting
from slopewise.text import unknown_name

ENTRY_POINTS = "slopewise.policies"

FOLDERS_VARIABLE = "SLOPEWISE_POLICIES"
"""Folders, separated as in PATH. In the environment, so that the simulator's worker processes know them, too."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a policy of the user's is: it is loaded when it is asked for."""

    name: str
    origin: str
    load: Callable[[], PolicyFile]


@dataclass(frozen=True, slots=True)
class Unusable:
    """A policy of the user's with a mistake in it, or a place without any."""

    name: str
    origin: str
    mistake: str


_loaded: dict[Path, PolicyFile] = {}
"""Files are executed once a process: a policy does not change while it decides."""

_loading = threading.Lock()

_named: dict[str, Path] = {}
"""Files that were named by their paths, by the policy's name."""


def use_folders(folders: Iterable[Path]) -> None:
    """Find policies in these folders from now on, in this process and in those that it starts; UsageError for none."""
    found = list(folders)
    for folder in found:
        if not folder.is_dir():
            raise UsageError(f"--policies-dir {folder}: is no folder; give one that holds policies (`*.py`).")
    if found:
        os.environ[FOLDERS_VARIABLE] = os.pathsep.join(str(folder.resolve()) for folder in found)


def is_path(text: str) -> bool:
    """Whether this names a file and not a policy: it has a slash in it, or ends as Python files do."""
    return os.sep in text or text.endswith(".py")


def name_of(text: str, beside: Path | None = None) -> str:
    """The name of the policy that a user has named, by its name or by its path; UsageError for a file with a mistake.

    A path that is not absolute is one from the folder `beside`, or from where the process was started.
    """
    if not is_path(text):
        return text
    return name_file(Path(text).expanduser() if beside is None else beside / Path(text).expanduser()).name


def name_file(path: Path) -> PolicyFile:
    """The policy in this file, which has its name from now on; UsageError for a mistake, or a name that is taken."""
    # Not through the file's own link: those of a mounted ConfigMap lead to folders that come and go.
    name, path = policy_name(path.stem, str(path)), path.parent.resolve() / path.name
    refuse_shipped(name, str(path))
    others = [place.origin for place in _places(name) if place.origin != str(path)]
    if others:
        raise UsageError(f"{path}: {others[0]} is a policy {name!r} as well; rename one of the two.")
    policy = _load_once(path)
    _named[name] = path
    return policy


def forget() -> None:
    """Forget which files were named and loaded, as if the process began: for tests, of which many share one."""
    _named.clear()
    _loaded.clear()


def names() -> list[str]:
    """The names of all policies, with dashes; whether each can be used is found out when it is loaded."""
    return sorted({*shipped(), *(place.name for place in _places() if is_policy_name(place.name))})


def find(name: str) -> PolicyFile:
    """The policy of that name (`flowcon`, `kube-default`, one of the user's); UsageError names those there are."""
    dashed = name.replace("_", "-")
    if dashed in shipped():
        return policies.find(dashed)
    places = _places(dashed)
    if not places and is_path(name):
        raise UsageError(
            f"{name!r} is a file; here a policy is named by its name, and found in a folder (--policies-dir)."
        )
    if not places:
        raise UsageError(unknown_name("policy", name, names()))
    if len(places) > 1:
        raise UsageError(f"policy {dashed}: there are two, {places[0].origin} and {places[1].origin}; rename one.")
    return places[0].load()


def build(name: str, parameters: PolicyParameters, setting: Setting) -> PolicyProtocol:
    """The policy of that name with these parameters, ready to decide; UsageError where its own code fails."""
    return find(name).build(parameters, setting)


def own() -> list[PolicyFile | Unusable]:
    """Every policy of the user's, loaded; what cannot be used says why. By name."""
    found: list[PolicyFile | Unusable] = [_tried(place) for place in _places()]
    found += [Unusable("", str(folder), "is no folder") for folder in _folders() if not folder.is_dir()]
    return sorted(found, key=lambda each: (each.name, each.origin))


def refuse_shipped(name: str, origin: str) -> None:
    """UsageError where a policy of the user's would have the name of a shipped one, which it cannot replace."""
    if name in shipped():
        raise UsageError(f"{origin}: a policy that comes with slopewise is called {name!r}; choose another name.")


def _tried(place: Place) -> PolicyFile | Unusable:
    try:
        refuse_shipped(place.name, place.origin)
        policy_name(place.name, place.origin)
        return find(place.name)
    except UsageError as error:
        return Unusable(place.name, place.origin, str(error))


@cache
def shipped() -> list[str]:
    """The names of the policies that come with Slopewise, with dashes."""
    return [name.replace("_", "-") for name in policies.names()]


def _places(name: str | None = None) -> list[Place]:
    """Where there are policies of the user's, or those of this name; a file counts once, however it was named."""
    # A folder that is not there has no files: `own` says so, and other policies are used all the same.
    found = (path for folder in _folders() for path in sorted(folder.glob("*.py")))
    files = dict.fromkeys([*_named.values(), *(path for path in found if not path.name.startswith(("_", ".")))])
    places = [Place(path.stem.replace("_", "-"), str(path), partial(_load_once, path)) for path in files]
    for point in announced():
        package, dashed = "a package" if point.dist is None else point.dist.name, point.name.replace("_", "-")
        origin = f"{package} ({point.value})"
        places.append(Place(dashed, origin, partial(load_package, dashed, point.module, origin)))
    return [place for place in places if name in (None, place.name)]


def _load_once(path: Path) -> PolicyFile:
    with _loading:
        if path not in _loaded:
            _loaded[path] = load_file(path)
        return _loaded[path]


def _folders() -> list[Path]:
    return [Path(text).resolve() for text in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if text]


@cache
def announced() -> tuple[EntryPoint, ...]:
    """Read once: it takes milliseconds, and nothing is installed while the process runs."""
    return tuple(entry_points(group=ENTRY_POINTS))


def favour_warnings(asked: Objectives, policy: str, *, reports: bool) -> tuple[str, ...]:
    """Why `favour: best` of a job has no effect under this policy; empty: it has, or its owner does not say it.

    `reports`: it has reported a loss; until then it may still name a study itself.
    """
    if not asked.favours_best or not (reports or asked.study):
        return ()
    if not asked.study:
        return ("favour: best has no effect: the job is in no study; name one",)
    name = parts_of(policy)[0]
    with suppress(UsageError):  # the user's file may have gone since it was loaded
        if not find(name).studies:
            return (f"favour: best has no effect: policy {name} favours no trial of a study; use marginal",)
    return ()
