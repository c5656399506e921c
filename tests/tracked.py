"""A training without its host, as a tracker sees it."""

from concurrent.futures import Future

from arkml.hive.protocol.runs import RunDetails, RunInfo, Status
from arkml.hive.protocol.settings import Settings
from arkml.training.results import TrainingProgress
from arkml.training.tracking import Tracking
from arkml.training.training_options import TrainingOptions

RUN = RunInfo("r1", "walker", "game", Status.RUNNING, 4, 2, 0)


class Client:
    """A hive that has one run."""

    def details(self, run_id):
        assert run_id == RUN.id
        answer = Future()
        answer.set_result(RunDetails(RUN, Settings(4, 2, hidden=128), None))
        return answer


def progress(rows, **metrics):
    return TrainingProgress("r1", 0, 0.0, rows, 0, 0, None, None, metrics, (), ())


def track(name, directory, *reports, begin=True, known=None, keep=lambda _: None):
    """Pass reports on to a tracker to the end of a training; return the warnings."""
    warnings = []
    policy = directory / "walker.onnx"
    policy.parent.mkdir(exist_ok=True)
    policy.write_bytes(b"a policy")
    options = TrainingOptions("walker.wasm", directory, track=name, seed=3)
    with Tracking(options, warnings.append, known, keep) as tracking:
        observe = tracking.observing(None)
        if begin:
            tracking.begin(Client(), RUN)
        for report in reports:
            observe(report)
        tracking.finish({"rollout/ep_rew_mean": 9.5}, 700, {"onnx": policy})
    return warnings
