"""Controllers that play the games of the suite by hand, from features to actions."""

import numpy as np
from tests.benchmarks.suite import HARD_FORMS


def swing(features):
    """Pump energy into the pendulum, and hold it when it is near upright."""
    angle, speed = np.arctan2(features[:, 1], features[:, 0]), 8 * features[:, 2]
    energy = speed**2 / 2 + 15 * (features[:, 0] - 1)
    pump = -np.sign(energy) * np.sign(speed)
    hold = -6 * angle - 1.25 * speed
    is_near = (np.abs(angle) < 0.5) & (np.abs(speed) < 4)
    return np.clip(np.where(is_near, hold, pump), -1, 1)[:, None]


def balance(features):
    """Hold the pole of the cart-pole upright and the cart in the middle."""
    return np.clip(features @ [0.24, 0.45, 0.377, 0.9], -1, 1)[:, None]


def approach(features):
    """Thrust to the target and slow down near it."""
    return np.clip(10 * features[:, :2] - 3 * features[:, 2:], -1, 1)


def _find(features):
    return np.clip(5 * features[:, :2] - 2.5 * features[:, 2:], -1, 1)


def _center(features):
    return np.clip(-10 * features[:, :2] - 5 * features[:, 2:], -1, 1)


def _land(features):
    """Lean towards the pad, and sink slower the lower the craft is."""
    x, y, vx, vy, angle, spin = features.T
    lean = np.clip(0.67 * x + 1.87 * vx, -0.36, 0.36)
    sink = -0.04 - 0.27 * np.clip(y, 0, 2)
    engines = [0.4 + 1.19 * (sink - vy), 8.75 * (angle - lean) + 1.57 * spin]
    return np.clip(np.stack(engines, axis=1), -1, 1)


# The linear-quadratic regulator of the motion near upright.
_GAINS = [0.724, -19.817, 27.411, 1.158, -0.701, 4.346]


def _balance_both(features):
    position, velocity, *sines_and_rates = features.T
    lower = np.arctan2(sines_and_rates[0], sines_and_rates[2])
    upper = np.arctan2(sines_and_rates[1], sines_and_rates[3])
    rates = [4 * rate for rate in sines_and_rates[4:]]
    body = np.stack([position, lower, upper, velocity, *rates], axis=1)
    return np.clip(-(body @ _GAINS), -1, 1)[:, None]


def _hunt(features):
    """Thrust to the hare, and away from a hunter that is near."""
    other = features[:, 4:6]
    distance = np.maximum(np.hypot(*other.T), 1e-6)[:, None]
    away = np.where(distance < 0.2, (distance - 0.2) * 8 * other / distance, 0)
    return np.clip(10 * features[:, :2] - features[:, 2:4] + away, -1, 1)


def corridor(features):
    """Run where it is allowed, rest at a door or without breath, and use the door's key."""
    breath, door = np.rint(3 * features[:, 1]), np.rint(8 * features[:, 2])
    move = np.select([(door > 2) & (breath > 0), door == 1, breath == 0], [3, 1, 1], 2)
    key = np.where(door == 1, 1 + np.argmax(features[:, 3:], axis=1), 0)
    return np.stack([move, key], axis=1)


_PLAIN = {
    "large_features": lambda features: features / 1e4,
    "shifted_features": lambda features: features - 1e3,
    "nan_features": np.nan_to_num,
    "huge_features": lambda features: np.where(features > 1e20, 0, features),
}


def _hard_swing(form):
    """Return the controller of the pendulum for the features of a hard form."""
    plain = _PLAIN.get(form, lambda features: features)
    return lambda features: swing(plain(features.astype(float)))


CONTROLLERS = {
    "pendulum": swing,
    "cart-pole": balance,
    "reach": approach,
    "sparse reach": _find,
    "sparse reach, alone": _find,
    "lander": _land,
    "double pendulum": _balance_both,
    "chase": _hunt,
    "point mass": _center,
    "corridor": corridor,
    **{f"pendulum, {form.replace('_', ' ')}": _hard_swing(form) for form in HARD_FORMS},
}
