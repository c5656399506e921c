"""Pictures of what agents see: images, grids, and bars of the entities that are there."""

import math

import numpy as np
import pytest

from arkml.envs.core.specs import Actions, ObservationPart, Spec
from arkml.envs.drawing import COLORS, LINE, PAPER, Bars, Figure, Plane
from arkml.envs.pictures import Pictures, picture_of

NONE = Actions(0, (), ())


def part(name, shape, kind, low=-math.inf, high=math.inf, categories=0):
    size = math.prod(shape)
    return ObservationPart(name, shape, (low,) * size, (high,) * size, False, kind, categories)


def drawn(values, *parts):
    """The picture of agents, each by its features."""
    figures = [Figure(np.array(each, "f4").ravel(), None, n) for n, each in enumerate(values)]
    return Pictures(Spec(parts, NONE)).draw(figures)


def test_only_images_and_grids_without_positions_are_pictures():
    image, vector = part("eye", (2, 2, 3), "image"), part("place", (2,), "vector")
    entities = (part("n", (1,), "vector"), part("rocks", (4, 2), "entities"))

    assert isinstance(picture_of(Spec((image, vector), NONE)), Pictures)
    assert isinstance(picture_of(Spec((vector, image), NONE, positions=(0, 1))), Plane)
    assert picture_of(Spec((vector,), NONE)) is None
    assert picture_of(Spec(entities, NONE)) is None


def test_an_image_is_enlarged_by_a_whole_factor_without_new_colors():
    pixels = np.array([[[0, 0, 0], [255, 0, 9]], [[1.6, 2.4, 300], [7, 7, -7]]])
    picture = drawn([pixels], part("eye", (2, 2, 3), "image"))

    assert picture.shape == (256, 256, 3)
    assert picture.dtype == np.uint8
    assert {*map(tuple, picture[:128, 128:].reshape(-1, 3).tolist())} == {(255, 0, 9)}
    assert picture[200, 5].tolist() == [2, 2, 255]
    assert picture[200, 200].tolist() == [7, 7, 0]


@pytest.mark.parametrize(
    ("values", "color"),
    [
        ([90], (90, 90, 90)),
        ([90, 80], (90, 80, 0)),
        ([90, 80, 70, 255], (90, 80, 70)),
        ([90, 80, 70, 0], PAPER),
        ([90, 80, 70, 60, 50], (90, 80, 70)),
    ],
)
def test_channels_are_gray_or_colors_with_or_without_an_opacity(values, color):
    shape = (1, 1, len(values))

    assert drawn([values], part("eye", shape, "image"))[128, 128].tolist() == list(color)


def test_pictures_of_agents_are_side_by_side_with_lines_between():
    eye = part("eye", (2, 2, 1), "image")
    picture = drawn([[10] * 4, [20] * 4, [30] * 4], eye)

    assert [picture[60, 60, 0], picture[60, 200, 0], picture[200, 60, 0]] == [10, 20, 30]
    assert picture[200, 200].tolist() == list(PAPER)
    assert picture[60, 128].tolist() == picture[128, 60].tolist() == list(LINE)
    assert drawn([], eye).min() > 240


def test_each_image_and_grid_of_an_agent_is_drawn():
    parts = (
        part("place", (3,), "vector"),
        part("near", (1, 1, 1), "image"),
        part("cells", (1, 1), "grid", categories=3),
    )
    picture = drawn([[5, 6, 7, 99, 2]], *parts)

    assert picture[128, 60].tolist() == [99] * 3
    assert picture[128, 200].tolist() == list(COLORS[2])


def test_an_image_that_is_too_large_is_drawn_by_every_nth_pixel():
    picture = drawn([np.tile([[10.0], [200.0]], (300, 2))], part("eye", (600, 2, 1), "image"))

    assert {*picture.reshape(-1, 3)[:, 0].tolist()} == {PAPER[0], 10, 200}


def test_a_category_has_a_color_and_what_is_none_is_paper():
    values = [0, 1, 2, 299, 1.5, -1, math.nan, 300]
    picture = drawn([values], part("cells", (1, 8), "grid", categories=300))
    cells = [tuple(color) for color in picture[128, 16::32].tolist()]

    assert cells[1:3] == [COLORS[1], COLORS[2]]
    assert cells[3] not in {*COLORS, PAPER}
    assert {cells[n] for n in (0, 4, 5, 6, 7)} == {PAPER}


def test_the_last_channel_of_a_cell_is_drawn_by_the_part_of_the_largest_number():
    values = [[0, 0], [1, 0], [1, -1], [0, 2], [math.nan, 0]]
    picture = drawn([values], part("cells", (1, 5, 2), "grid"))
    cells = picture[128, 25::51]

    assert cells[0].tolist() == cells[4].tolist() == list(PAPER)
    assert cells[3].tolist() == list(COLORS[1])
    distance = np.abs(cells.astype(int) - np.array(PAPER)).sum(1)
    assert 0 < distance[2] < distance[3]
    assert distance[1] > 0
    assert np.argmax(cells[1]) == np.argmax(COLORS[0])
    declared = part("cells", (1, 5, 2), "grid", 0, 2)
    assert drawn([np.ones((5, 2))], declared)[128, 25].tolist() == cells[2].tolist()


def test_bars_are_those_of_entities_that_are_there():
    parts = (part("n", (1,), "vector", 0, 4), part("rocks", (4, 1), "entities", -1, 1))
    bars = Bars(Spec(parts, NONE))

    def columns(*features):
        """The height of what is drawn in each column of pixels."""
        picture = bars.draw([Figure(np.array(features, "f4"), None, 0)])
        return (picture == COLORS[0]).all(-1).sum(0)

    def count(*features):
        is_drawn = columns(*features) > 0
        return int((is_drawn & ~np.roll(is_drawn, 1)).sum())

    assert [count(n, 1, 1, 1, 1) for n in (0, 1, 4)] == [1, 2, 5]
    assert columns(1, 1, 1, 1, 1).tolist() == columns(1, 1, -1, -0.5, 0.5).tolist()
