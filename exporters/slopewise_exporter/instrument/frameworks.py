"""Adds the callbacks that only report to the fits of the frameworks that a training imports, while each fit runs.

A callback of this package that the training gives itself stays the only one. What a framework of another version does
otherwise costs its metrics and one line in the log; its fit is then called as it was.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable

from slopewise_exporter.instrument.training import Training
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.threads.following import following
from slopewise_exporter.threads.libraries import watch_torch
from slopewise_exporter.values import Checker

_check = Checker()

Hook = Callable[[ModuleType], None]
"""Gets a module that was just executed. It must not raise: an import would fail."""

_Given = Callable[[inspect.BoundArguments], Any]
"""The callbacks that a fit has already: a list, one callback, or None."""

_Add = Callable[[inspect.BoundArguments, Reporter, ExitStack], None]
"""Adds a callback with this reporter to the arguments of a fit, or to its object; the stack takes it off again."""


def hooks(training: Training) -> dict[str, Hook]:
    """For `after_import`: a module of each framework, and what is changed there."""
    lightning = _fits("Trainer", "fit", "lightning", _held(lambda trainer: trainer.callbacks, _maker("lightning")))
    transformers = _held(lambda trainer: trainer.callback_handler.callbacks, _maker("transformers"))
    monitor = _argument("monitor", _maker("sklearn", "ReportMonitor"), several=False)
    catboost = _argument("callbacks", _maker("catboost"))
    patches: dict[str, Callable[[Training, ModuleType], None]] = {
        "keras": _fits("Model", "fit", "keras", _argument("callbacks", _maker("keras"))),
        "lightning.pytorch.trainer.trainer": lightning,
        "pytorch_lightning.trainer.trainer": lightning,
        "transformers.trainer": _fits("Trainer", "train", "transformers", transformers),
        "accelerate.accelerator": _accelerate,
        "xgboost": _boosting,
        "lightgbm": _boosting,
        "catboost.core": _fits("CatBoost", "_fit", "catboost", (_of_catboost, catboost[1])),
        "sklearn.ensemble._gb": _fits("BaseGradientBoosting", "fit", "scikit-learn", monitor),
        "sklearn.neural_network._multilayer_perceptron": _perceptron,
        "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": _histograms,
        "joblib._parallel_backends": _joblib,
        "torch": lambda _, module: watch_torch(module),
    }
    return {module: partial(_patched, training, patch) for module, patch in patches.items()}


def _patched(training: Training, patch: Callable[[Training, ModuleType], None], module: ModuleType) -> None:
    """`patch`, which logs one line where it would fail an import."""
    try:
        patch(training, module)
    except Exception as error:
        name = module.__name__.partition(".")[0]
        _check.warn(name, f"fits of this version of {name} are not reported ({type(error).__name__}: {error})")


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Call `around(original, arguments, named)` instead of a method or function."""
    original = getattr(owner, name)

    @wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        return around(original, arguments, named)

    setattr(owner, name, call)


def _fits(kind: str, method: str, framework: str, how: tuple[_Given, _Add]) -> Callable[[Training, ModuleType], None]:
    """A patch: the fits of one class have a callback more."""

    def patch(training: Training, module: ModuleType) -> None:
        _wrap(getattr(module, kind), method, _reported_fit(training, framework, *how))

    return patch


def _reported_fit(training: Training, framework: str, given: _Given, add: _Add) -> Callable[..., Any]:
    """For `_wrap`: the fit with a callback more, where this process reports and no callback of ours is there."""

    def around(original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with ExitStack() as stack:
            try:
                bound = inspect.signature(original).bind(*arguments, **named)
                if not any(map(_is_ours, _listed(given(bound)))):
                    reporter = stack.enter_context(training.fit(framework))
                    if reporter is not None:
                        add(bound, reporter, stack)
                        arguments, named = bound.args, bound.kwargs
            except Exception as error:
                _warn_unreported(framework, error)
            return original(*arguments, **named)

    return around


def _warn_unreported(framework: str, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}"
    _check.warn(framework, f"this fit of {framework} is not reported ({reason}). Training goes on")


def _argument(name: str, make: Callable[[Reporter], Any], *, several: bool = True) -> tuple[_Given, _Add]:
    """For fits that have their callbacks as an argument; with `several` false, one at most."""

    def add(bound: inspect.BoundArguments, reporter: Reporter, stack: ExitStack) -> None:
        given = bound.arguments.get(name)
        if not several:
            bound.arguments[name] = make(reporter) if given is None else given
        elif given is not None and not isinstance(given, Iterable) and hasattr(given, "append"):
            given.append(make(reporter))  # a CallbackList of Keras
        else:
            bound.arguments[name] = [*_listed(given), make(reporter)]

    return lambda bound: bound.arguments.get(name), add


def _held(callbacks_of: Callable[[Any], list[Any]], make: Callable[[Reporter], Any]) -> tuple[_Given, _Add]:
    """For fits whose object holds its callbacks."""

    def add(bound: inspect.BoundArguments, reporter: Reporter, stack: ExitStack) -> None:
        callbacks, callback = callbacks_of(bound.arguments["self"]), make(reporter)
        callbacks.append(callback)

        @stack.callback
        def take_out() -> None:
            if callback in callbacks:
                callbacks.remove(callback)

    return lambda bound: callbacks_of(bound.arguments["self"]), add


def _maker(module: str, kind: str = "ReportCallback") -> Callable[[Reporter], Any]:
    """Makes the callback that only reports of one of this package's modules, which imports the framework."""

    def make(reporter: Reporter) -> Any:
        return getattr(import_module(f"slopewise_exporter.{module}"), kind)(reporter=reporter)

    return make


def _of_catboost(bound: inspect.BoundArguments) -> Any:
    """What a fit has; RuntimeError where any callback would fail it."""
    if bound.arguments["self"].get_param("task_type") == "GPU":
        raise RuntimeError("on a GPU CatBoost takes no callback")
    return bound.arguments.get("callbacks")


def _listed(callbacks: Any) -> list[Any]:
    if callbacks is None:
        return []
    callbacks = getattr(callbacks, "callbacks", callbacks)
    return list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]


def _is_ours(callback: Any) -> bool:
    return any(each.__module__.startswith("slopewise_exporter.") for each in type(callback).__mro__)


def _accelerate(training: Training, module: ModuleType) -> None:
    """What the training logs, also where it uses no tracker."""
    trackers: list[Any] = []

    def log(accelerator: Any, values: Any, step: int | None = None, **_: Any) -> None:
        if any(map(_is_ours, accelerator.trackers)):
            return
        with training.fit("accelerate") as reporter:
            if reporter is None:
                return
            if not trackers:
                trackers.append(import_module("slopewise_exporter.accelerate").SlopewiseTracker(reporter=reporter))
            trackers[0].log(values, step=step)

    def around(original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            log(*arguments, **named)
        except Exception as error:
            _warn_unreported("accelerate", error)
        return original(*arguments, **named)

    _wrap(module.Accelerator, "log", around)


def _boosting(training: Training, module: ModuleType) -> None:
    """XGBoost and LightGBM: one function, which their classes for scikit-learn have imported by name."""
    name, original = module.__name__, module.train
    given, add = _argument("callbacks", _maker(name))

    def begin(bound: inspect.BoundArguments, reporter: Reporter, stack: ExitStack) -> None:
        add(bound, reporter, stack)
        pools = following.begin_fit()
        if name == "lightgbm":
            bound.arguments["params"] = bound.arguments["callbacks"][-1].widen(bound.arguments["params"], pools)

    _wrap(module, "train", _reported_fit(training, name, given, begin))
    for inner in (sys.modules.get(f"{name}.{part}") for part in ("training", "engine", "sklearn")):
        if inner is not None and getattr(inner, "train", None) is original:
            inner.train = module.train  # type: ignore[attr-defined]


def _histograms(_: Training, module: ModuleType) -> None:
    """A fit counts its threads once, and hands the number to each tree, which is a step."""
    grower = module.TreeGrower

    @wraps(grower, updated=())
    def grow(*arguments: Any, **named: Any) -> Any:
        following.work.trees += 1
        if following.wanted != following.applied:
            following.apply()
        if isinstance(named.get("n_threads"), int):
            named["n_threads"] = following.instead_of(named["n_threads"])
        return grower(*arguments, **named)

    module.TreeGrower = grow  # type: ignore[attr-defined]


def _joblib(_: Training, module: ModuleType) -> None:
    """Worker processes share the number: joblib itself divides the cores among them, but no number that is set."""

    def variables(original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        found = original(*arguments, **named)
        try:
            bound = inspect.signature(original).bind(*arguments, **named).arguments
            if bound["self"].inner_max_num_threads is None:
                found.update(following.share(bound["n_jobs"], found))
        except Exception as error:
            _check.warn("joblib", f"joblib counts its workers' threads itself ({type(error).__name__}: {error})")
        return found

    _wrap(module.ParallelBackendBase, "_prepare_worker_env", variables)


def _perceptron(training: Training, module: ModuleType) -> None:
    """MLPClassifier and MLPRegressor call `_update_no_improvement_count` at the end of each epoch, and nothing else."""
    reports: dict[int, Any] = {}

    def add(bound: inspect.BoundArguments, reporter: Reporter, stack: ExitStack) -> None:
        model = bound.arguments["self"]
        report = import_module("slopewise_exporter.fit_report").FitReport(reporter, "scikit-learn")
        reports[id(model)] = report
        stack.callback(reports.pop, id(model))
        if bound.arguments.get("incremental"):  # one of many, with no end of its own
            report.begin()
        else:
            report.begin(model.max_iter, upper_bound=True)
            stack.callback(report.end)

    def epoch(original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = original(*arguments, **named)
        model = arguments[0]
        report = reports.get(id(model))
        if report is not None:
            report.step(model.loss_curve_[-1])
            report.epoch()
        return result

    perceptron = module.BaseMultilayerPerceptron
    _wrap(perceptron, "_fit", _reported_fit(training, "scikit-learn", lambda bound: None, add))
    _wrap(perceptron, "_update_no_improvement_count", epoch)


# --- a function right after an import ---------------------------------------------------------------------------


def after_import(hooks: Mapping[str, Hook]) -> None:
    """Call each hook with its module: now where it is imported already, else when it is."""
    sys.meta_path.insert(0, _HookingFinder(hooks))
    for name, hook in hooks.items():
        module = sys.modules.get(name)
        if module is not None:
            hook(module)


class _HookingFinder(MetaPathFinder):
    """Finds nothing itself: asks the other finders, and adds the hook to the loader that they found."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = dict(hooks)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that has a hook; None for all others, which the other finders then find as ever."""
        if name not in self._hooks:
            return None
        for finder in sys.meta_path:
            look = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if look is None else look(name, path, target)
            if spec is not None:
                _call_after(spec.loader, self._hooks[name])
                return spec  # type: ignore[no-any-return]
        return None


def _call_after(loader: Any, hook: Hook) -> None:
    """Make a loader call the hook, once. The loader stays what it is: programs read its type and its attributes."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def execute_and_call(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        hook(module)

    try:
        loader.exec_module = execute_and_call
    except AttributeError:  # a loader written in C: its modules keep to their output
        return
