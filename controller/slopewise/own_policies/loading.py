"""Loads a user's policy from a file or a package, and ends code of it that does not end; a mistake is one message.

The module is executed once a process, with the rights of that process. No bytecode is written beside the file, which
may be on a read-only volume.

An alarm interrupts Python at its next line; `except Exception` does not catch it. A loop in C, and one that catches
everything, are ended with the process. Only in the main thread, where signals arrive.
"""

from __future__ import annotations

import ast
import faulthandler
import importlib
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType

from pydantic import ValidationError

from slopewise.errors import UsageError
from slopewise.model import ClusterSnapshot, Decisions, MemoryState
from slopewise.own_policies.answers import CheckedPolicy
from slopewise.policies import ACTIONS, PolicyFile, PolicyParameters, PolicyProtocol, Setting

FAILURES = (Exception, SystemExit)
"""What code of the user's may raise: anything but an interruption, which is not its own. `sys.exit` is a failure."""

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")

_HOW = "`slopewise policies new NAME` writes one that works"


def is_policy_name(text: str) -> bool:
    """Whether a policy can be called so in a document."""
    return bool(_NAME.fullmatch(text)) and len(text) <= 63


def policy_name(text: str, where: str) -> str:
    """A policy's name, with dashes; UsageError for one that could not be written in a document."""
    if not is_policy_name(text):
        raise UsageError(
            f"{where}: {text!r} cannot be the name of a policy; use small letters, digits and _ or - in between."
        )
    return text.replace("_", "-")


def load_file(path: Path) -> PolicyFile:
    """The policy in this file, under the file's name; UsageError says what is wrong in it, and where."""
    name = policy_name(path.stem, str(path))
    module = ModuleType(f"slopewise_policy_{path.stem}")
    module.__file__ = str(path)
    tree = _parsed(path)
    if not any(_binds_policy(statement) for statement in tree.body):
        raise UsageError(_without_policy(str(path)))  # a training script, say: it must not be executed
    code = compile(tree, str(path), "exec", dont_inherit=True)
    sys.modules[module.__name__] = module  # pydantic looks annotations up there
    try:
        exec(code, module.__dict__)  # noqa: S102 - a policy is code, as the documentation says
        return read_module(name, module, str(path), str(path))
    except UsageError:
        del sys.modules[module.__name__]
        raise
    except FAILURES as error:
        del sys.modules[module.__name__]
        raise _cannot_be_loaded(str(path), error) from error


def load_package(name: str, module_name: str, origin: str) -> PolicyFile:
    """The policy in a module of an installed package, under its entry point's name; UsageError as for a file."""
    try:
        return read_module(policy_name(name, origin), importlib.import_module(module_name), origin)
    except UsageError:
        raise
    except FAILURES as error:
        raise _cannot_be_loaded(origin, error) from error


def read_module(name: str, module: ModuleType, origin: str, file: str | None = None) -> PolicyFile:
    """What a policy's module must hold; UsageError says what is missing or is something else."""
    parameters, policy = getattr(module, "Parameters", None), getattr(module, "Policy", None)
    if not (isinstance(parameters, type) and issubclass(parameters, PolicyParameters)):
        raise UsageError(f"{origin}: has no class Parameters(PolicyParameters); add one, also an empty one ({_HOW}).")
    if not (isinstance(policy, type) and callable(getattr(policy, "decide", None))):
        raise UsageError(_without_policy(origin))
    actions = getattr(module, "ACTIONS", ())
    if isinstance(actions, str):
        raise UsageError(f'{origin}: ACTIONS is a text; write a tuple, such as ("{actions}",).')
    if unknown := sorted({str(each) for each in actions} - ACTIONS):
        raise UsageError(f"{origin}: ACTIONS has {unknown[0]!r}; a policy may resize, place and migrate.")
    try:
        parameters()
    except ValidationError as error:
        (place, *_) = error.errors()[0]["loc"] or ("",)
        raise UsageError(f"{origin}: Parameters.{place} has no default, or one out of its bounds; mend it.") from error

    def build(given: PolicyParameters, setting: Setting) -> PolicyProtocol:
        try:
            made = policy(given, setting)
        except FAILURES as error:
            raise UsageError(f"{origin}: Policy(parameters, setting) failed: {described(error, origin)}.") from error
        return CheckedPolicy(name, made, setting.control, lambda error: described(error, origin))

    return PolicyFile.of(name, module, build, origin, file)


def described(error: BaseException, origin: str) -> str:
    """What was raised and at which line of the user's code, e.g. `ZeroDivisionError: division by zero (line 31)`."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = _place(error, origin)
    return f"{text} ({place})" if place else text


def _place(error: BaseException, origin: str) -> str:
    """The innermost line of the user's own file, else the innermost of all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == origin]
    if own:
        return f"line {own[-1].lineno}"
    return f"{Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""


def _without_policy(origin: str) -> str:
    return f"{origin}: has no class Policy with a method decide(snapshot, memory); add it ({_HOW})."


def _binds_policy(statement: ast.stmt) -> bool:
    """Whether a module has a `Policy` after this statement: its own, an imported one, or perhaps one among all."""
    if isinstance(statement, ast.ImportFrom | ast.Import):
        return any((alias.asname or alias.name) in ("Policy", "*") for alias in statement.names)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "Policy" for target in statement.targets)
    return isinstance(statement, ast.ClassDef) and statement.name == "Policy"


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give the path of a policy's file.") from error
    except SyntaxError as error:
        line = f" line {error.lineno}" if error.lineno else ""
        raise UsageError(f"{path}{line}: {error.msg}; a policy is a file of Python ({_HOW}).") from error
    except ValueError as error:
        raise UsageError(f"{path}: is no Python ({error}); a policy is a file of Python ({_HOW}).") from error


def _cannot_be_loaded(origin: str, error: BaseException) -> UsageError:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return UsageError(
            f"{origin}: imports {error.name}, which is not there; install it where slopewise runs, or leave it out."
        )
    return UsageError(f"{origin}: cannot be loaded: {described(error, origin)}; mend it.")


LIMIT_SECONDS = 10.0
"""Half of the shortest interval of a paper. A pass takes milliseconds, on a machine with other work a second."""

_STDERR = 2  # the descriptor: a test has another `sys.stderr`, which is no file

PATIENCE = 3
"""So many limits go by until the process is ended: the alarm comes first wherever it can."""


class EndlessError(BaseException):
    """The policy's code has not ended in time; no Exception, so that no policy catches it by accident."""


@contextmanager
def limited(file: Path) -> Iterator[None]:
    """EndlessError where the code within takes longer than the limit, with the line of the file it was in."""

    def ring(_: int, frame: FrameType | None) -> None:
        lines = [at.lineno for at in traceback.extract_stack(frame) if at.filename == str(file)]
        where = f" (line {lines[-1]})" if lines else ""
        raise EndlessError(f"has not ended within {LIMIT_SECONDS:g} s{where}; a pass waits for it")

    handler = signal.signal(signal.SIGALRM, ring)
    left = signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS, LIMIT_SECONDS)
    faulthandler.dump_traceback_later(PATIENCE * LIMIT_SECONDS, exit=True, file=_STDERR)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *left)


@dataclass(frozen=True, slots=True)
class LimitedPolicy:
    """A policy of whose decisions each must come within the limit. `file` is its own."""

    policy: PolicyProtocol
    file: Path

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """What the policy decides; EndlessError where it takes too long."""
        with limited(self.file):
            return self.policy.decide(snapshot, memory)
