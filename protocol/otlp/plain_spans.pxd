# The types that `plain_spans.py` has where it is compiled: numbers of C, and data that is not copied.
import cython

ctypedef const unsigned char *Bytes

cdef int _short_bytes
cdef dict _known

@cython.locals(data=Bytes, end=Py_ssize_t, offset=Py_ssize_t, kind=int, code=int, stop=Py_ssize_t,
               head=Py_ssize_t, tag=int, start_ns="unsigned long long", end_ns="unsigned long long",
               has_status=bint)
cpdef object plain_span(bytes raw, object resource, object scope)

@cython.locals(size=Py_ssize_t, shift=int, begin=Py_ssize_t, digit=int)
cdef Py_ssize_t _length(Bytes data, Py_ssize_t offset, Py_ssize_t end) noexcept

@cython.locals(number="unsigned long long", index=Py_ssize_t)
cdef unsigned long long _fixed64(Bytes data, Py_ssize_t offset) noexcept

@cython.locals(pair=bytes, key_at=Py_ssize_t, value_at=Py_ssize_t, text_at=Py_ssize_t, head=Py_ssize_t)
cdef object _add_pair(Bytes data, Py_ssize_t offset, Py_ssize_t stop, dict attributes)

@cython.locals(time_ns="unsigned long long", tag=int, head=Py_ssize_t, stop=Py_ssize_t)
cdef object _event(Bytes data, Py_ssize_t offset, Py_ssize_t end)

@cython.locals(code=int, tag=int, head=Py_ssize_t, stop=Py_ssize_t)
cdef object _status(Bytes data, Py_ssize_t offset, Py_ssize_t end)

@cython.locals(data=Bytes, size=Py_ssize_t, head=Py_ssize_t, offset=Py_ssize_t, end=Py_ssize_t,
               resource_at=Py_ssize_t, resource_end=Py_ssize_t, scope_spans_end=Py_ssize_t,
               scope_at=Py_ssize_t, scope_end=Py_ssize_t, raw_at=Py_ssize_t, raw_end=Py_ssize_t)
cpdef object packed_parts(bytes envelope)

cdef Py_ssize_t _inner(Bytes data, Py_ssize_t offset, Py_ssize_t end, int tag) noexcept
