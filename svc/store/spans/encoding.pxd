# The types that `encoding.py` has where it is compiled: containers of C's Python, and numbers of C.
import cython

cdef dict _shared
cdef dict _numbers
cdef dict _costs
cdef tuple _lengths
cdef bytes _NULL, _EIGHT, _TRUE, _FALSE

@cython.locals(fields=list, first=bytes)
cdef bytes _piece(list rows)

@cython.locals(shared=tuple)
cdef _add_row(list fields, object digest, object row)

@cython.locals(data=bytes, size=Py_ssize_t)
cdef _add_text(list fields, str value)

@cython.locals(encoded=bytes, fields=list)
cdef bytes _new_shared(tuple values)

@cython.locals(encoded=bytes)
cdef bytes _new_number(object value)

@cython.locals(encoded=bytes)
cdef bytes _new_cost(object value)

@cython.locals(days="long long", seconds="long long", micros="long long")
cpdef object microseconds(object moment)

@cython.locals(written=str, integer=str, fraction=str, scale=int, digits="long long", high="long long", low="long long",
               number="long long", million="long long", lower="long long")
cpdef bytes numeric(object value)
