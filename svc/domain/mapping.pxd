# The types that `mapping.py` has where it is compiled: dictionaries and tuples known to be such.
import cython

@cython.locals(attributes=dict, resource=dict, found=dict, tokens=tuple, costs=tuple)
cpdef object map_span(object span, object prices)

cdef object _call_site(object span, dict found, object kind)

cpdef object kind_of(dict found, bint calls_a_model)

cpdef tuple tokens_of(dict found)

cdef tuple _costs(dict found, object priced, tuple tokens)

cdef tuple _outcome(object span, dict found, object kind, object said)

cdef object _input_preview(object kind, dict found, object messages)

cdef object _output_preview(object kind, dict found, bint answered, object said)

cdef tuple _own_call(object span, dict found, object status, object error_type, object error_message)

cdef tuple _calls_in_answer(object calls, object failures)
