# The types that `packing.py` has where it is compiled: numbers of C, and bytes and lists known to be such.
import cython

cdef class Packer:
    cdef unsigned long long[::1] _slots
    cdef dict _named
    cdef Py_ssize_t _named_bytes

    @cython.locals(body=bytes, slots="unsigned long long[::1]", mask="unsigned long long", mark="unsigned long long",
                   literals=list, hashes=list, messages=dict, position=Py_ssize_t, repeats=int, texts=list, text=bytes,
                   start=Py_ssize_t, entry=tuple, digest=bytes, lengths=list, lists=list, history=Py_ssize_t,
                   list_index=Py_ssize_t)
    cpdef object take_apart(self, object project_id, object day, object span)

    @cython.locals(entry=tuple)
    cdef tuple _name(self, object mark, bytes text)

@cython.locals(head=bytes)
cdef Py_ssize_t _find(bytes body, bytes text, Py_ssize_t start) except -2

@cython.locals(texts=list, raw=bytes, history=Py_ssize_t)
cdef tuple _texts(object span)

@cython.locals(value=object, history=Py_ssize_t)
cdef Py_ssize_t _add_texts(list texts, dict attributes) except -2

@cython.locals(data=bytes)
cdef list _pieces(str text)
