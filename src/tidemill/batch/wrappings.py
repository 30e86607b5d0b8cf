"""Arrays without what wraps their values: dictionaries, runs, extension types, list views.

Arrow's cast takes most of these off, but not all: it cannot decode a dictionary of views (the
categories of polars), and the lists it makes of list views have an offset too few. So they come off
here first, at any depth of lists, structs and maps.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.batch.types import is_any_list, normal_type
from tidemill.errors import TooLarge

_types = pa.types
_OFFSET_MAX = 2**31 - 1


def unwrapped(array: pa.Array) -> pa.Array:
    """The same values in plain arrays; the array itself if there is nothing to take off.

    >>> unwrapped(pa.array(["a", None, "a"]).dictionary_encode()).to_pylist()
    ['a', None, 'a']
    """
    if not _is_wrapped(array.type):
        return array
    if isinstance(array, pa.ExtensionArray):
        return unwrapped(array.storage)
    if isinstance(array, pa.RunEndEncodedArray):
        import pyarrow.compute as pc  # noqa: PLC0415 (slow to import, and hardly needed)

        return unwrapped(pc.run_end_decode(array))
    if isinstance(array, pa.DictionaryArray):
        values = unwrapped(array.dictionary)
        return values.cast(normal_type(values.type, "dictionary")).take(array.indices)
    if _types.is_struct(array.type):
        children = [unwrapped(child) for child in array.flatten()]
        names = [field.name for field in array.type]
        return pa.StructArray.from_arrays(children, names, mask=array.is_null())
    if _types.is_map(array.type):
        return _plain_map(array)
    return _plain_list(array)


def _is_wrapped(kind: pa.DataType) -> bool:
    if (
        _types.is_dictionary(kind)
        or _types.is_run_end_encoded(kind)
        or isinstance(kind, pa.BaseExtensionType)
        or _types.is_list_view(kind)
        or _types.is_large_list_view(kind)
    ):
        return True
    if _types.is_struct(kind) or is_any_list(kind) or _types.is_map(kind):
        return any(_is_wrapped(kind.field(index).type) for index in range(kind.num_fields))
    return False


def _plain_list(array: pa.Array) -> pa.Array:
    """A list of any kind as a plain one, holding only the values that are really in it."""
    import pyarrow.compute as pc  # noqa: PLC0415 (slow to import, and hardly needed)

    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _OFFSET_MAX:
        raise TooLarge(f"the lists of one push hold at most {_OFFSET_MAX} values: push in parts")
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), unwrapped(array.flatten()), mask=array.is_null()
    )


def _plain_map(array: pa.Array) -> pa.Array:
    """A map whose keys and items are plain, by way of a list of entries."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    # A copy, for Arrow takes no offsets that are a part of others beside a mask.
    offsets = pa.array(array.offsets.to_numpy())
    found = _plain_list(pa.ListArray.from_arrays(offsets, entries, mask=array.is_null()))
    keys, items = found.values.flatten()
    # Where an offset is null, so is the map.
    is_null = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.MapArray.from_arrays(pa.array(found.offsets.to_numpy(), mask=is_null), keys, items)
