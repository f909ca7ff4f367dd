"""Shape functions of the expression language of specs; ValueError if an argument does not fit."""

from __future__ import annotations


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that *shapes* broadcast to; ValueError if they do not."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    sizes = []
    for column in zip(*padded, strict=True):
        wide = {size for size in column if size != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast")
        sizes.append(wide.pop() if wide else 1)
    return tuple(sizes)


def place_of(shape: tuple[int, ...], axis: int) -> int:
    """Return *axis* counted from the front; ValueError if the shape has no such axis."""
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"{axis} is not an axis of a shape of rank {len(shape)}")
    return axis % len(shape)


def replace(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    """Return *shape* with axis *axis* of size *size*."""
    place = place_of(shape, axis)
    return (*shape[:place], size, *shape[place + 1 :])


def drop(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return *shape* without *axis*."""
    place = place_of(shape, axis)
    return (*shape[:place], *shape[place + 1 :])


def broadcasts(*shapes: tuple[int, ...]) -> bool:
    """Return whether *shapes* broadcast."""
    try:
        broadcast(*shapes)
    except ValueError:
        return False
    return True


def windows(size: int, window: int, stride: int, before: int, after: int, ceil: bool) -> int:  # noqa: FBT001
    """Return how many windows a padded axis holds.

    *ceil* adds one that extends past the end, unless it begins in the end padding.
    """
    free = size + before + after - window
    if not ceil:
        return free // stride + 1
    count = -(-free // stride) + 1
    # the last window must begin in the input or in the padding before it
    return count - 1 if (count - 1) * stride >= size + before else count


def padded(shape: tuple[int, ...], padding: tuple[int, ...]) -> tuple[int, ...]:
    """Return *shape* with *padding*: before each axis, then after each."""
    rank = len(shape)
    if len(padding) != 2 * rank:
        raise ValueError(f"{len(padding)} numbers do not pad a shape of rank {rank}")
    return tuple(size + padding[i] + padding[i + rank] for i, size in enumerate(shape))


def sliced(
    shape: tuple[int, ...], begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[int, ...]:
    """Return *shape* cut from *begin* to *end* at *strides*, each with an entry for every axis."""
    if not len(shape) == len(begin) == len(end) == len(strides):
        raise ValueError(f"{len(begin)}, {len(end)} and {len(strides)} numbers do not cut a shape of rank {len(shape)}")
    cuts = zip(shape, begin, end, strides, strict=True)
    return tuple(len(range(size)[first:last:step]) for size, first, last, step in cuts)


def repeated(shape: tuple[int, ...], repeats: tuple[int, ...]) -> tuple[int, ...]:
    """Return *shape* with each size times its entry of *repeats*."""
    if len(repeats) != len(shape):
        raise ValueError(f"{len(repeats)} numbers do not repeat a shape of rank {len(shape)}")
    return tuple(size * count for size, count in zip(shape, repeats, strict=True))


def permute(shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[int, ...]:
    """Return *shape* with its axes in the order of *perm*."""
    if sorted(perm) != list(range(len(shape))):
        raise ValueError(f"{list(perm)} does not name every axis of a shape of rank {len(shape)} once")
    return tuple(shape[axis] for axis in perm)


def take(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of *axes*."""
    return tuple(shape[place_of(shape, axis)] for axis in axes)


def reduce(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:  # noqa: FBT001
    """Return *shape* with *axes* reduced: to 1 if *keepdims*, else removed."""
    places = {place_of(shape, axis) for axis in axes}
    return tuple(1 if i in places else size for i, size in enumerate(shape) if keepdims or i not in places)


def kept_axis(place: int, axes: tuple[int, ...]) -> int:
    """Return the number that the axis at *place* had before *axes* were removed."""
    # each removed axis at or before the place moves it by one
    for axis in sorted(axes):
        place += axis <= place
    return place
