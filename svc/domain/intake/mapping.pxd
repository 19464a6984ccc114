# The types that `mapping.py` has where it is compiled: dictionaries and tuples known to be such.
import cython

@cython.locals(attributes=dict, resource=dict, fields=dict, tokens=tuple, costs=tuple)
cpdef object map_span(object span, object prices)

cdef object _call_site(object span, dict fields, object kind)

cpdef object kind_of(dict fields, bint calls_a_model)

cpdef tuple tokens_of(dict fields)

cdef tuple _costs(dict fields, object priced, tuple tokens)

cdef tuple _outcome(object span, dict fields, object kind, object answer_text, bint raises)

cdef object _input_preview(object kind, dict fields, object messages)

cdef object _output_preview(object kind, dict fields, object messages, object answer_text, bint asks)

cdef tuple _own_call(object span, dict fields, object status, object error_type, object error_message)
