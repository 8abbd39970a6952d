/* The extension module _loops: a Python function for each compiled loop.
 *
 * A loop takes numpy arrays, named tuples of arrays, and numbers. This file turns them into an array of words
 * (compiler/objects.py), calls the loop without the interpreter's lock, and returns its numbers.
 *
 * Only what this file needs of Python's stable ABI (PEP 384, as of Python 3.11) and of numpy's public array structure
 * is declared here, so no headers of Python are needed. Both are the same for all builds with the interpreter's lock.
 */
#include <stddef.h>
#include <stdint.h>

typedef struct { intptr_t ob_refcnt; void *ob_type; } PyObject;
typedef PyObject *(*PyCFunctionFast)(PyObject *, PyObject *const *, intptr_t);
typedef struct { const char *ml_name; void *ml_meth; int ml_flags; const char *ml_doc; } PyMethodDef;
typedef struct {
    PyObject ob_base; void *m_init; intptr_t m_index; PyObject *m_copy;
    const char *m_name; const char *m_doc; intptr_t m_size; PyMethodDef *m_methods;
    void *m_slots; void *m_traverse; void *m_clear; void *m_free;
} PyModuleDef;

enum { METH_FASTCALL = 0x80, PYTHON_ABI_VERSION = 3, TUPLE_SUBCLASS = 1 << 26 };

extern PyObject *PyExc_TypeError, *PyExc_IndexError, *PyExc_KeyError, *PyExc_ImportError;
extern PyObject _Py_NoneStruct;
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
unsigned long PyType_GetFlags(void *);
int PyType_IsSubtype(void *, void *);
intptr_t PyTuple_Size(PyObject *);
PyObject *PyTuple_GetItem(PyObject *, intptr_t);
PyObject *PyTuple_New(intptr_t);
int PyTuple_SetItem(PyObject *, intptr_t, PyObject *);
int PyObject_IsTrue(PyObject *);
long long PyLong_AsLongLong(PyObject *);
unsigned long long PyLong_AsUnsignedLongLongMask(PyObject *);
PyObject *PyLong_FromLongLong(long long);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
PyObject *PyBool_FromLong(long);
PyObject *PyErr_Occurred(void);
PyObject *PyErr_Format(PyObject *, const char *, ...);
PyObject *PyUnicode_AsUTF8String(PyObject *);
char *PyBytes_AsString(PyObject *);
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
PyObject *PyCapsule_New(void *, const char *, void *);
void *PyCapsule_GetPointer(PyObject *, const char *);
PyObject *PyImport_ImportModule(const char *);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
int PyModule_AddStringConstant(PyObject *, const char *, const char *);
PyObject *PyModule_Create2(PyModuleDef *, int);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);

/* numpy's PyArrayObject_fields and the beginning of PyArray_Descr, the same in numpy 1 and 2. */
typedef struct {
    PyObject ob_base; char *data; int n_dimensions; intptr_t *dimensions; intptr_t *strides;
    PyObject *base; void *descr; int flags;
} Array;
typedef struct { PyObject ob_base; void *typeobj; char kind, type, byteorder; } Descr;
enum { C_CONTIGUOUS = 1 };

#ifdef __x86_64__
#include <cpuid.h>

/* Return the highest of the levels 1 to 4 of the x86-64 psABI that the processor and the system support. */
static int x86_64_level(void) {
    unsigned a, b, c, d, b7, c7, d7, c8, saved = 0, saved_high;
    const unsigned v2 = 1u | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23; /* SSE3, SSSE3, CX16, SSE4, POPCNT */
    const unsigned v3 = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;     /* FMA, MOVBE, OSXSAVE, AVX, F16C */
    const unsigned v3_7 = 1u << 3 | 1u << 5 | 1u << 8;                            /* BMI1, AVX2, BMI2 */
    const unsigned v4_7 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;   /* AVX512 F, DQ, CD, BW, VL */
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & v2) != v2) return 1;
    if ((c & v3) != v3 || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || (b7 & v3_7) != v3_7) return 2;
    if (!__get_cpuid(0x80000001, &a, &b, &c8, &d) || !(c8 & 1u << 5)) return 2; /* LZCNT */
    __asm__("xgetbv" : "=a"(saved), "=d"(saved_high) : "c"(0));
    if ((saved & 0x06) != 0x06) return 2; /* the system saves the registers of AVX */
    return (b7 & v4_7) == v4_7 && (saved & 0xe6) == 0xe6 ? 4 : 3;
}
#endif

struct loop {
    const char *name, *arguments, *result;
    int32_t (*functions[4])(int64_t *);
    PyMethodDef method;
};
#include "table.h" /* what build.py writes: LEVELS, level_names, best_level, sources, loops, N_LOOPS, MAX_WORDS */

static void *array_type;
static int level;

static const char *take(PyObject *, const char *, int64_t *, intptr_t *, const struct loop *);

static int take_array(PyObject *object, char code, int64_t *words, const struct loop *loop) {
    if (object->ob_type != array_type && !PyType_IsSubtype(object->ob_type, array_type)) {
        PyErr_Format(PyExc_TypeError, "%s takes an array, not %R", loop->name, object);
        return 0;
    }
    const Array *array = (const Array *)object;
    const Descr *descr = array->descr;
    char type = descr->type == 'q' ? 'l' : descr->type == 'Q' ? 'L' : descr->type;
    if (type != code || descr->byteorder == '>' || !(array->flags & C_CONTIGUOUS) || array->n_dimensions != 1) {
        PyErr_Format(PyExc_TypeError, "%s takes a contiguous array of type '%c', not %R", loop->name, code, object);
        return 0;
    }
    words[0] = (int64_t)(intptr_t)array->data;
    words[1] = array->dimensions[0];
    return 1;
}

/* Write the words of an argument; return the codes that follow, or NULL with an exception. */
static const char *take(PyObject *object, const char *code, int64_t *words, intptr_t *n_words, const struct loop *loop) {
    switch (*code) {
    case '\0':
        PyErr_Format(PyExc_TypeError, "%s takes fewer arguments", loop->name);
        return NULL;
    case 'n':
        words[*n_words] = PyLong_AsLongLong(object);
        if (words[(*n_words)++] == -1 && PyErr_Occurred()) return NULL;
        return code + 1;
    case 'N':
        words[*n_words] = (int64_t)PyLong_AsUnsignedLongLongMask(object);
        if (words[(*n_words)++] == -1 && PyErr_Occurred()) return NULL;
        return code + 1;
    case 't':
        words[*n_words] = PyObject_IsTrue(object);
        return words[(*n_words)++] < 0 ? NULL : code + 1;
    case '(': {
        intptr_t size = (PyType_GetFlags(object->ob_type) & TUPLE_SUBCLASS) ? PyTuple_Size(object) : -1;
        intptr_t place = 0;
        for (code++; *code != ')'; code++, place++, *n_words += 2) {
            if (place >= size) break;
            if (!take_array(PyTuple_GetItem(object, place), *code, words + *n_words, loop)) return NULL;
        }
        if (*code != ')' || place != size) {
            PyErr_Format(PyExc_TypeError, "%s takes a named tuple with other arrays than %R", loop->name, object);
            return NULL;
        }
        return code + 1;
    }
    default:
        if (!take_array(object, *code, words + *n_words, loop)) return NULL;
        *n_words += 2;
        return code + 1;
    }
}

static PyObject *number(char code, int64_t word) {
    if (code == 't') return PyBool_FromLong(word != 0);
    return code == 'N' ? PyLong_FromUnsignedLongLong((uint64_t)word) : PyLong_FromLongLong(word);
}

static PyObject *call(PyObject *self, PyObject *const *arguments, intptr_t count) {
    const struct loop *loop = PyCapsule_GetPointer(self, NULL);
    int64_t words[MAX_WORDS];
    intptr_t n_words = 0;
    const char *code = loop->arguments;
    for (intptr_t place = 0; place < count; place++) {
        code = take(arguments[place], code, words, &n_words, loop);
        if (!code) return NULL;
    }
    if (*code) return PyErr_Format(PyExc_TypeError, "%s takes more than %zd arguments", loop->name, count);
    void *thread = PyEval_SaveThread();
    int32_t status = loop->functions[level](words);
    PyEval_RestoreThread(thread);
    if (status) return PyErr_Format(PyExc_IndexError, "%s left an array", loop->name);
    const char *result = loop->result;
    if (!result[0]) {
        Py_IncRef(&_Py_NoneStruct);
        return &_Py_NoneStruct;
    }
    if (!result[1]) return number(result[0], words[0]);
    intptr_t size = 0;
    while (result[size]) size++;
    PyObject *numbers = PyTuple_New(size);
    for (intptr_t place = 0; numbers && place < size; place++) {
        PyObject *item = number(result[place], words[place]);
        if (!item) {
            Py_DecRef(numbers);
            return NULL;
        }
        PyTuple_SetItem(numbers, place, item);
    }
    return numbers;
}

static int same(const char *one, const char *other) {
    while (*one && *one == *other) one++, other++;
    return *one == *other;
}

static PyObject *get_loop(PyObject *module, PyObject *const *arguments, intptr_t count) {
    PyObject *name = count == 1 ? PyUnicode_AsUTF8String(arguments[0]) : NULL;
    if (!name) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "loop() takes a name");
    const char *text = PyBytes_AsString(name);
    PyObject *function = NULL;
    for (int place = 0; !function && place < N_LOOPS; place++) {
        if (!same(loops[place].name, text)) continue;
        PyObject *capsule = PyCapsule_New(&loops[place], NULL, NULL);
        loops[place].method = (PyMethodDef){loops[place].name, (void *)call, METH_FASTCALL, NULL};
        if (capsule) function = PyCFunction_NewEx(&loops[place].method, capsule, NULL);
        if (capsule) Py_DecRef(capsule);
        if (!function) break;
    }
    if (!function && !PyErr_Occurred()) PyErr_Format(PyExc_KeyError, "the library has no loop '%s'", text);
    Py_DecRef(name);
    (void)module;
    return function;
}

static PyMethodDef methods[] = {
    {"loop", (void *)get_loop, METH_FASTCALL, "Return the function of a loop by its name."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef definition = {
    .ob_base = {1, NULL}, .m_name = "_loops", .m_doc = "The compiled loops of ddbio.", .m_size = -1, .m_methods = methods,
};

__attribute__((visibility("default"))) PyObject *PyInit__loops(void) {
    level = best_level();
    if (level < 0) return PyErr_Format(PyExc_ImportError, "this processor lacks instructions of " LEVELS);
    PyObject *numpy = PyImport_ImportModule("numpy");
    array_type = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
    if (numpy) Py_DecRef(numpy);
    if (!array_type) return NULL;
    PyObject *module = PyModule_Create2(&definition, PYTHON_ABI_VERSION);
    if (module && (PyModule_AddStringConstant(module, "LEVEL", level_names[level]) < 0 ||
                   PyModule_AddStringConstant(module, "SOURCES", sources) < 0)) {
        Py_DecRef(module);
        return NULL;
    }
    return module;
}
