"""Players of MinAtar's games, from boards [n, 10, 10, channels] to a choice for each."""

import numpy as np

SIDE = 10
LEFT, RIGHT = 1, 2
"""The choices of Breakout and of Space Invaders."""


def _columns(cells):
    """The column of the only cell of each board that is set, int, [n]."""
    return cells.any(axis=1).argmax(axis=1)


def _rows(cells):
    return cells.any(axis=2).argmax(axis=1)


def _toward(at, target, less, more):
    return np.select([target < at, target > at], [less, more], 0)


def breakout(boards):
    """
    Go where the ball comes down, or follow it while it goes up.

    An odd number of bricks is met with the paddle a cell before, which sends the ball on, and not
    back the way it came.
    """
    paddle, ball, trail, bricks = (boards[..., channel] > 0 for channel in range(4))
    is_odd = bricks.sum(axis=(1, 2)) % 2 == 1
    y, x = _rows(ball), _columns(ball)
    is_right = (x > _columns(trail)) | ((x == _columns(trail)) & (x == 0))
    unfolded = (np.where(is_right, x, 2 * SIDE - 1 - x) + SIDE - 1 - is_odd - y) % (2 * SIDE)
    lands = np.minimum(unfolded, 2 * SIDE - 1 - unfolded)
    target = np.where(y >= _rows(trail), lands, x)
    return _toward(_columns(paddle), target, LEFT, RIGHT)


def freeway(boards):
    """Go up."""
    return np.ones(len(boards), int)


MOVES = ((0, 0), (0, -1), (-1, 0), (0, 1), (1, 0))
"""The step of each choice of Asterix, (rows, columns)."""


def asterix(boards):
    """Step out of the way of an enemy that is near, and else go to the nearest gold."""
    player, enemy, gold = (boards[..., channel] > 0 for channel in (0, 1, 3))
    y, x, each = _rows(player), _columns(player), np.arange(len(boards))
    padded = np.pad(enemy, ((0, 0), (0, 0), (2, 2)))
    near = np.any([padded[..., shift : shift + SIDE] for shift in range(5)], axis=0)
    has_gold, costs = gold.any(axis=(1, 2)), []
    for down, right in MOVES:
        row, column = np.clip(y + down, 1, SIDE - 2), np.clip(x + right, 0, SIDE - 1)
        ways = np.where(gold, _DISTANCES[row, column], 2 * SIDE).min(axis=(1, 2))
        costs.append(100 * near[each, row, column] + np.where(has_gold, ways, np.abs(column - 5)))
    return np.argmin(costs, axis=0)


_AWAY = np.abs(np.subtract.outer(np.arange(SIDE), np.arange(SIDE)))
_DISTANCES = _AWAY[:, None, :, None] + _AWAY[None, :, None, :]
"""Steps from each cell to each cell, [10, 10, 10, 10]."""


def space_invaders(boards):
    """Go below the nearest alien and fire, and stay out of the columns of bullets."""
    return np.array([_shoot(board) for board in boards > 0])


def _after(alien, way):
    """Where the last alien, which moves each step, meets a bullet that is fired now, [1, 2]."""
    y, x = alien
    for fired in range(SIDE):
        if not 0 <= x + way < SIDE:
            y, way = y + 1, -way
        else:
            x += way
        if y == SIDE - 2 - fired:
            break
    return np.array([[y, x]])


def _shoot(board):
    x = int(board[-1, :, 0].argmax())
    is_hit = board[2:9, :, 5].any(axis=0)
    aliens = np.argwhere(board[..., 1])
    if len(aliens) == 1:
        aliens = _after(aliens[0], 1 if board[..., 3].any() else -1)
    columns = aliens[:, 1]
    costs = []
    for place in (x, max(x - 1, 0), min(x + 1, SIDE - 1)):
        free = np.flatnonzero(~is_hit)
        escape = np.abs(free - place).min() if len(free) else 0
        costs.append(100 * escape + np.abs(columns - place).min())
    best = int(np.argmin(costs))
    return 3 if best == 0 else best


PLAYERS = {
    "breakout": breakout,
    "freeway": freeway,
    "asterix": asterix,
    "space_invaders": space_invaders,
}
