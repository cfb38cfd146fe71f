"""Step times and stop requests for training loops that are not ours: Lightning and the Hugging Face Trainer."""

from importlib import import_module
from typing import Any

from .errors import DataplaneError
from .step_timer import StepTimer
from .stop import stop_requested


def lightning_callback(timer: StepTimer, *, stop: bool = True) -> Any:
    """A Lightning callback that times each batch and, with `stop`, ends training after the step in which SIGTERM came.

    Raises DataplaneError where Lightning is not installed.
    """
    base = _base("lightning.pytorch", "Callback", "lightning")
    watch = stop

    class PhalanxCallback(base):  # type: ignore[misc, valid-type]
        """Tells the timer when a batch is there and when its step is done."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if watch:
                stop_requested()

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            timer.arrived()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            timer.finished()
            if watch and stop_requested():
                trainer.should_stop = True

    return PhalanxCallback()


def trainer_callback(timer: StepTimer, *, stop: bool = True) -> Any:
    """A callback for the Hugging Face Trainer that times each step and, with `stop`, saves and ends when SIGTERM came.

    Raises DataplaneError where transformers is not installed.
    """
    base = _base("transformers", "TrainerCallback", "transformers")
    watch = stop

    class PhalanxCallback(base):  # type: ignore[misc, valid-type]
        """Tells the timer when a batch is there and when its step is done."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if watch:
                stop_requested()

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            timer.arrived()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            timer.finished()
            if watch and stop_requested():
                control.should_save = True
                control.should_training_stop = True
            return control

    return PhalanxCallback()


def _base(module: str, name: str, package: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ImportError:
        raise DataplaneError(
            f"this callback needs the package {package}; install it with: pip install {package}"
        ) from None
