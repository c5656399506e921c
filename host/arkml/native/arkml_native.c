/*
 * The native part of arkml: what runs once for each guest and round, or copies from and to each
 * guest, without Python.
 *
 * Theory of operation. A guest's call is a future of wasmtime, which runs on a stack of its own, a
 * fiber, whenever it is polled. Two functions here are called on that stack: `arkml_suspend`, by
 * the one async import of the shim, and `arkml_end_turn`, when the guest has run for a whole turn.
 * Both read and write the guest's control block and return at once.
 *
 * `arkml_run` polls the futures of many guests, each once a round, and notes how each of them
 * stopped and how long it ran. The calling thread holds no lock of Python meanwhile. It may be
 * helped by workers, threads of this library that every host of the process shares. A round is cut
 * into shares, one for each thread that may take part. A thread runs the guests of its own share
 * first, so that a guest stays in the caches of one core, and then takes over what is left of the
 * others. A worker that wakes up late finds the round closed and sleeps again, so nobody waits for
 * a thread that has not begun. One round at a time has workers; another one runs on its caller.
 *
 * Guests share no memory but the column memory, where each writes to its own blocks only. So the
 * results do not depend on which thread ran which guest, or on their order.
 *
 * Whether threads help is measured: `arkml_run` keeps the time of a guest with and without them,
 * uses what is faster, and tries the other one now and then.
 *
 * A round ends early after `slice` seconds, so that Python can look at signals; it goes on with
 * the guests that are left when `arkml_run` is called again with `ARKML_GO_ON`.
 *
 * `arkml_call` runs one call of one guest, from its beginning to its end, and answers submits in
 * between whose policy is a module of this process, by `arkml_rows`, or a session of onnxruntime,
 * by its C API. Python is asked for what else the guest wants, and goes on with the call itself.
 *
 * `arkml_take_steps` makes the instances of one guest, by the steps that Python has listed for all
 * guests of its module.
 *
 * Nothing is linked against wasmtime: its functions come as pointers. `runtime/native.py` declares
 * the same structures and refuses a library whose ARKML_BUILD is another one.
 */

#define _GNU_SOURCE
#define _DARWIN_C_SOURCE
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#ifdef __linux__
#include <fcntl.h>
#include <unistd.h>
#endif

#ifdef _WIN32
#include <windows.h>
#define ARKML_PUBLIC __declspec(dllexport)
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#define ARKML_PUBLIC __attribute__((visibility("default")))
#endif

#define ARKML_BUILD 13u /* another one for each change of a structure or function here */
#define ARKML_MOST_THREADS 256
#define TO_ZERO 0x8040u /* of MXCSR: results and operands, as in `policies/subnormals.py` */

enum { SUBMIT = 1, FRAME_END = 4 }; /* reasons in the control block; RUNNING is 0 */

enum { NOT_RUN, ENDED, SUBMITTED, AT_FRAME_END, OTHER, OUTCOMES };

enum { ARKML_ANSWER = 1, ARKML_CHARGE = 2, ARKML_GO_ON = 4 };

/* How `arkml_call` ended: a call that left nothing to look at, one that did, a guest whose import
 * Python answers, a guest whose submit was answered and who has run for `room`. */
enum { DONE, LEFT_NEWS, SUSPENDED, SPENT };

typedef bool (*poll_function)(void *future);
typedef void *(*call_function)(void *, const void *, const void *, size_t, void *, size_t, void **,
                               void **);
typedef void (*delete_function)(void *future);

/* The arguments of wasmtime_func_call_async, as numbers. */
struct call {
    uint64_t context, function, arguments, argument_count, results, result_count, trap, error;
};

/* What guests took in rounds of the same kind. */
struct way {
    double seconds, guests;
};

/* What a lockstep owns and Python fills in; the last group belongs to this library. */
struct arkml_round {
    poll_function poll;
    uint64_t *futures;       /* by place */
    call_function begin;     /* both for the calls below */
    delete_function delete;
    const struct call *calls; /* NULL, or of the guests of this round, [count]: begun in their turn
                                 unless they are zeros, and deleted if they end in it */
    const uint64_t *reasons; /* by place: the address of REASON in the guest's control block */
    const uint64_t *memories; /* by place: the address of the guest's memory, or 0 */
    double *used;            /* by place: seconds that are charged to the guest */
    double *began;           /* by place: what was charged when its call began */
    int64_t answer;          /* bytes from REASON to ANSWER */
    double long_stretch;     /* seconds from which processor time is compared */
    double slice;            /* seconds after which a round returns early */
    double alert;            /* seconds in a call from which a guest is left to its fiber */
    uint32_t threads;        /* that may take part, the calling one included */
    uint32_t is_measured;    /* zero: use all threads always, for tests */

    uint8_t *outcomes;         /* [count], out: how each guest stopped */
    uint64_t counts[OUTCOMES]; /* out: guests by outcome */
    double seconds;            /* out: charged to all guests together */
    double elsewhere;          /* out: of these, by workers */
    double wall;               /* out: seconds of the clock */
    uint32_t is_late;          /* out: a turn ran out */
    uint32_t took_part;        /* out: threads in the last slice */
    _Atomic uint32_t runs;     /* out: a slice is in progress, and no array may move */

    struct way alone, together; /* by the clock, without and with workers */
    uint32_t phase;         /* which way is tried, or DECIDED */
    uint32_t tried;         /* rounds of this phase */
    uint32_t helps;         /* in DECIDED: workers are used */
    uint32_t left;          /* in DECIDED: rounds until both ways are tried again */
    uint32_t doubled;       /* how often threads did not help, one time after another */
};

/* ---- On the guest's fiber ---------------------------------------------------------------- */

ARKML_PUBLIC uint32_t arkml_build(void) { return ARKML_BUILD; }

ARKML_PUBLIC size_t arkml_round_size(void) { return sizeof(struct arkml_round); }

/*
 * Suspend the guest: copy the two words of the continuation to which its argument points.
 *
 * wasmtime_func_async_callback_t. An argument is a wasmtime_val_t, whose number is at offset 8.
 */
ARKML_PUBLIC void arkml_suspend(void *env, void *caller, const void *arguments, size_t count,
                                void *results, size_t result_count, void **trap,
                                void *continuation) {
    (void)env, (void)caller, (void)count, (void)results, (void)result_count, (void)trap;
    uint64_t source;
    memcpy(&source, (const char *)arguments + 8, sizeof source);
    memcpy(continuation, (const void *)(uintptr_t)source, 16);
}

/*
 * End a turn: suspend the guest at the first of two deadlines, and give it a turn at the second,
 * or the error that the host has left in `state` between them.
 *
 * The callback of wasmtime_store_epoch_deadline_callback; `state` points to DEADLINE, and the
 * length of a turn, in ticks, lies `turn_offset` bytes from there.
 */
static int64_t turn_offset;

ARKML_PUBLIC void arkml_set_turn_offset(int64_t bytes) { turn_offset = bytes; }

ARKML_PUBLIC void *arkml_end_turn(void *context, uint64_t *state, uint64_t *delta, uint8_t *kind) {
    (void)context;
    uint64_t found = *state;
    *state = 0;
    if (found > 1) return (void *)(uintptr_t)found;
    if (found == 1) {
        uint32_t ticks;
        memcpy(&ticks, (const char *)state + turn_offset, sizeof ticks);
        *delta = ticks;
        *kind = 0; /* continue */
    } else {
        *delta = 0;
        *kind = 1; /* yield */
        *state = 1;
    }
    return NULL;
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void give_way(void) {
#ifdef _WIN32
    SwitchToThread();
#else
    sched_yield();
#endif
}

/* ---- Running guests ----------------------------------------------------------------------- */

static double now(void) {
#ifdef _WIN32
    LARGE_INTEGER ticks, frequency;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&frequency);
    return (double)ticks.QuadPart / (double)frequency.QuadPart;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
#endif
}

/* Return the processor time of this thread in seconds, or a negative number where none is known. */
static double processor_now(void) {
#ifdef _WIN32
    return -1.0;
#else
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) return -1.0;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
#endif
}

/* The guests of one thread: a part of `places`, of which any thread takes the next one. */
struct share {
    _Alignas(64) _Atomic size_t next;
    size_t end;
};

/* A round in progress. */
struct job {
    struct arkml_round *round;
    const int64_t *places;
    uint32_t flags;
    uint32_t share_count;
    double until;       /* when the caller stops taking guests */
    _Atomic bool stops; /* nobody takes another guest */
    struct share shares[ARKML_MOST_THREADS];
};

/* What one thread has found, added to the round when it leaves. */
struct findings {
    uint64_t counts[OUTCOMES];
    double seconds;
    double then;      /* the last look at the clock */
    double processor; /* the last look at the processor's clock, and what was charged since */
    double since;
    bool is_late;
};

/* Charge a guest for the time since the last look at the clock. */
static void charge(const struct arkml_round *round, struct findings *found, int64_t place) {
    double at = now(), ran = at - found->then;
    found->then = at;
    if (ran >= round->long_stretch && found->processor >= 0) {
        /* A thread that was held up does not charge its guest for others. */
        double processor = processor_now();
        double counted = processor - found->processor - found->since;
        found->processor = processor;
        found->since = 0;
        if (counted < 0) counted = 0;
        if (counted < ran) ran = counted;
    } else {
        found->since += ran;
    }
    round->used[place] += ran;
    found->seconds += ran;
}

static uint32_t word_at(uint64_t address) {
    return *(const volatile uint32_t *)(uintptr_t)address;
}

static void *pointer(uint64_t address) { return (void *)(uintptr_t)address; }

static void *begin_call(call_function begin, const struct call *call) {
    return begin(pointer(call->context), pointer(call->function), pointer(call->arguments),
                 (size_t)call->argument_count, pointer(call->results), (size_t)call->result_count,
                 pointer(call->trap), pointer(call->error));
}

/* Only the thread that runs a guest sets its future; one that looks ahead may read it meanwhile. */
static void set_future(struct arkml_round *round, int64_t place, uint64_t future) {
    __atomic_store_n(&round->futures[place], future, __ATOMIC_RELAXED);
}

/* The guests after the present one, whose memory and call are fetched while it runs. */
static const size_t AHEAD = 2;

/*
 * Fetch the beginning of what a guest needs first into the caches.
 *
 * Memories lie 4 GiB apart, so the first access to each of thousands waits for pages of the page
 * table that are of this guest alone, longer than for the memory itself.
 */
static void look_ahead(const struct arkml_round *round, int64_t place) {
    __builtin_prefetch(pointer(round->memories[place]));
    const char *future = pointer(__atomic_load_n(&round->futures[place], __ATOMIC_RELAXED));
    for (size_t line = 0; line < 3; line++) __builtin_prefetch(future + 64 * line, 1);
}

/* Run one guest until its call or frame ends, or it is suspended; a spent turn is followed by one
 * more, since it may have been nearly over when the guest began. */
static void run_guest(struct job *job, struct findings *found, size_t index) {
    struct arkml_round *round = job->round;
    int64_t place = job->places[index];
    if (round->calls && round->calls[index].context)
        set_future(round, place, (uint64_t)(uintptr_t)begin_call(round->begin, &round->calls[index]));
    void *future = pointer(round->futures[place]);
    uint64_t reason_at = round->reasons[place];
    bool charges = job->flags & ARKML_CHARGE;
    if (job->flags & ARKML_ANSWER)
        *(volatile uint32_t *)(uintptr_t)(reason_at + (uint64_t)round->answer) = 1;
    bool ended, is_low;
    uint32_t reason;
    for (bool is_last = false;; is_last = true) {
        ended = round->poll(future);
        if (charges) charge(round, found, place);
        reason = word_at(reason_at);
        is_low = charges && round->used[place] - round->began[place] > round->alert;
        if (ended || reason != 0) break;
        found->is_late = true;
        if (is_low || is_last) break;
    }
    uint8_t outcome = ended                          ? ENDED
                      : reason == SUBMIT && !is_low  ? SUBMITTED
                      : reason == FRAME_END          ? AT_FRAME_END
                                                     : OTHER;
    if (ended && round->calls) {
        set_future(round, place, 0);
        round->delete(future);
    }
    round->outcomes[index] = outcome;
    found->counts[outcome]++;
}

/* Guests between two looks at the clock where none is charged and no turn ran out. */
static const size_t LOOKS = 16;

/* Run guests of share `number`, then of the others, until none is left or the round stops. */
static void take_part(struct job *job, struct findings *found, uint32_t number, bool is_caller) {
    bool charges = job->flags & ARKML_CHARGE;
    found->processor = charges ? processor_now() : -1.0;
    found->then = now();
    size_t looked = 0;
    for (uint32_t turn = 0; turn < job->share_count; turn++) {
        struct share *share = &job->shares[(number + turn) % job->share_count];
        for (;;) {
            if (atomic_load_explicit(&job->stops, memory_order_relaxed)) return;
            if (atomic_load_explicit(&share->next, memory_order_relaxed) >= share->end) break;
            size_t index = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
            if (index >= share->end) break;
            if (job->round->outcomes[index] != NOT_RUN) continue; /* in the slice before */
            if (index + AHEAD < share->end) look_ahead(job->round, job->places[index + AHEAD]);
            run_guest(job, found, index);
            if (is_caller) {
                if (!charges && (++looked % LOOKS == 0 || found->is_late)) found->then = now();
                if (found->then > job->until) {
                    atomic_store_explicit(&job->stops, true, memory_order_relaxed);
                    return;
                }
            }
        }
    }
}

static void add(struct arkml_round *round, const struct findings *found, bool is_worker) {
    for (int outcome = 0; outcome < OUTCOMES; outcome++)
        round->counts[outcome] += found->counts[outcome];
    round->seconds += found->seconds;
    if (is_worker) round->elsewhere += found->seconds;
    round->is_late |= found->is_late;
    round->took_part++;
}

/* Delete the calls of guests, [count], which have ended. */
ARKML_PUBLIC void arkml_delete(delete_function delete, const int64_t *places, size_t count,
                               uint64_t *futures) {
    for (size_t n = 0; n < count; n++) {
        void *future = pointer(futures[places[n]]);
        futures[places[n]] = 0;
        if (future) delete (future);
    }
}

/* ---- Instances of guests ------------------------------------------------------------------ */

enum { LIMIT, SET_DEADLINE, TURNS, PREPARED, LINKED, EXPORT, FIND, DEFINE, SET_GLOBAL, SET_ELEMENT,
       GROW };

enum { I32 = 0 }; /* a kind of values */

enum { BY_BLOCK = 1 }; /* the offset of the control block is added to the number */

/* One slot of the room of a guest: a wasmtime_instance_t, or a wasmtime_extern_t, whose item is
 * `of`. A wasmtime_val_t is laid out likewise. */
struct slot {
    uint8_t kind;
    uint64_t of[3];
};

/* A step in the making of a guest's instances. Its item is in slot 0. */
struct step {
    uint32_t kind, flags;
    uint32_t source, slot;   /* an instance of which it takes an export, and where it leaves it */
    void *object;            /* a linker, a prepared module, a callback */
    const void *module;
    const char *space;       /* the module's name of an item, and its own; neither ends with 0 */
    size_t space_size;
    const char *name;
    size_t name_size;
    int64_t numbers[5];
    struct slot value;
};

/* Functions of wasmtime, and the steps of one module. */
struct arkml_steps {
    void (*limit)(void *store, int64_t, int64_t, int64_t, int64_t, int64_t);
    void (*set_deadline)(void *context, uint64_t ticks);
    void (*call_at_deadline)(void *store, void *callback, void *state, void *finalizer);
    void *(*prepared)(const void *prepared, void *context, void *instance, void **trap,
                      void **error);
    void *(*linked)(const void *linker, void *context, const void *module, void *instance,
                    void **trap, void **error);
    poll_function poll;
    delete_function delete_future;
    bool (*export_of)(void *context, const void *instance, const char *, size_t, void *item);
    bool (*find)(const void *linker, void *context, const char *, size_t, const char *, size_t,
                 void *item);
    void *(*define)(void *linker, void *context, const char *, size_t, const char *, size_t,
                    const void *item);
    void *(*set_global)(void *context, const void *global, const void *value);
    void *(*set_element)(void *context, const void *table, uint64_t index, const void *value);
    void *(*grow)(void *context, const void *memory, uint64_t pages, uint64_t *before);
    const struct step *steps;
    size_t count;
};

/* Take one step; return whether it succeeded. */
static bool take_step(const struct arkml_steps *all, const struct step *step, void *store,
                      void *context, uint64_t control, struct slot *room, void **trap,
                      void **error) {
    struct slot *slot = &room[step->slot];
    struct slot value = step->value;
    const int64_t *numbers = step->numbers;
    uint64_t number = (uint64_t)numbers[0] + (step->flags & BY_BLOCK ? control : 0), before;
    void *future = NULL;
    switch (step->kind) {
    case LIMIT:
        all->limit(store, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
        return true;
    case SET_DEADLINE:
        all->set_deadline(context, number);
        return true;
    case TURNS:
        all->call_at_deadline(store, step->object, pointer(number), NULL);
        return true;
    case PREPARED:
        future = all->prepared(step->object, context, slot, trap, error);
        break;
    case LINKED:
        future = all->linked(step->object, context, step->module, slot, trap, error);
        break;
    case EXPORT:
        return all->export_of(context, &room[step->source], step->name, step->name_size, slot);
    case FIND:
        return all->find(step->object, context, step->space, step->space_size, step->name,
                         step->name_size, slot);
    case DEFINE:
        *error = all->define(step->object, context, step->space, step->space_size, step->name,
                             step->name_size, slot);
        break;
    case SET_GLOBAL:
        if (value.kind == I32) memcpy(value.of, &(uint32_t){(uint32_t)number}, 4);
        else value.of[0] = number;
        *error = all->set_global(context, room->of, &value);
        break;
    case SET_ELEMENT:
        memcpy(value.of, room->of, sizeof value.of);
        *error = all->set_element(context, slot->of, 0, &value);
        break;
    case GROW:
        *error = all->grow(context, slot->of, number, &before);
        break;
    default:
        return false;
    }
    if (future) {
        while (!all->poll(future)) continue;
        all->delete_future(future);
    }
    return !*trap && !*error;
}

/*
 * Take the steps for one guest, in its Store, up to the first that fails.
 *
 * Returns the number of that step, from 1 on, or 0. Its trap and its error are the first words of
 * the room then; a step that left neither has found no item of its name.
 */
ARKML_PUBLIC size_t arkml_take_steps(const struct arkml_steps *all, void *store, void *context,
                                     uint64_t control, struct slot *room) {
    void *left[2] = {NULL, NULL};
    for (size_t n = 0; n < all->count; n++)
        if (!take_step(all, &all->steps[n], store, context, control, room, &left[0], &left[1])) {
            memcpy(room, left, sizeof left);
            return n + 1;
        }
    return 0;
}

/* ---- Memories of guests ------------------------------------------------------------------- */

typedef void (*read_function)(void *context, const void *global, void *value);
typedef void *(*write_function)(void *context, const void *global, const void *value);
typedef uint64_t (*size_function)(void *context, const void *memory);

/* Read globals, [count]; their contexts and their wasmtime_global_t lie at these addresses. Values,
 * wasmtime_val_t of `size` bytes, lie side by side. */
ARKML_PUBLIC void arkml_read_globals(read_function read, const uint64_t *contexts,
                                     const uint64_t *globals, size_t count, size_t size,
                                     char *into) {
    for (size_t n = 0; n < count; n++, into += size)
        read(pointer(contexts[n]), pointer(globals[n]), into);
}

/* Set globals, [count], likewise, up to the first error, which is returned. */
ARKML_PUBLIC void *arkml_write_globals(write_function write, const uint64_t *contexts,
                                       const uint64_t *globals, size_t count, size_t size,
                                       const char *from) {
    void *error = NULL;
    for (size_t n = 0; n < count && !error; n++, from += size)
        error = write(pointer(contexts[n]), pointer(globals[n]), from);
    return error;
}

/* Write the pages of memories, [count], whose contexts and wasmtime_memory_t lie at these. */
ARKML_PUBLIC void arkml_memory_pages(size_function pages, const uint64_t *contexts,
                                     const uint64_t *memories, size_t count, uint64_t *into) {
    for (size_t n = 0; n < count; n++) into[n] = pages(pointer(contexts[n]), pointer(memories[n]));
}

/* Copy `size` bytes from each address, [count], side by side; from the address 0, zeros. */
ARKML_PUBLIC void arkml_gather(const uint64_t *addresses, size_t count, size_t size, char *into) {
    for (size_t n = 0; n < count; n++, into += size) {
        if (addresses[n])
            memcpy(into, pointer(addresses[n]), size);
        else
            memset(into, 0, size);
    }
}

/* Copy `size` bytes to each address, [count], of bytes that lie side by side; none to 0. */
ARKML_PUBLIC void arkml_scatter(const uint64_t *addresses, size_t count, size_t size,
                                const char *from) {
    for (size_t n = 0; n < count; n++, from += size)
        if (addresses[n]) memcpy(pointer(addresses[n]), from, size);
}

/*
 * Models that are compiled to modules: a function of one row, over a memory with places for inputs
 * and outputs. Python holds the GIL meanwhile, so that one thread at a time is in a module.
 */

typedef void *(*unchecked_function)(void *context, const void *function, void *values, size_t count,
                                    void **trap);

/* A column of a batch, with a place in the memory of a module. */
struct column {
    char *rows;  /* side by side, `size` bytes each */
    char *place;
    size_t size;
};

/* What Python fills in for a module, or for its runs on one batch. */
struct arkml_rows {
    unchecked_function call;
    _Atomic uint32_t *taken;       /* of the module: the era of the process whose thread runs it */
    void *context;
    const void *function;
    size_t count;                  /* rows */
    size_t inputs, outputs;
    const struct column *columns;  /* of the inputs, and then of the outputs */
    void *trap, *error;            /* out, of the call that failed */
};

/* A wasmtime_val_raw_t. */
union value {
    int32_t i32;
    int64_t i64;
    char bytes[16];
};

/* The number of forks to this process: a thread of the parent that runs a module is not here. */
static uint32_t era = 1;

/* Take a module for this thread, unless another one runs it. */
static bool take(struct arkml_rows *rows) {
    uint32_t found = atomic_load_explicit(rows->taken, memory_order_relaxed);
    return found != era && atomic_compare_exchange_strong_explicit(
                               rows->taken, &found, era, memory_order_acquire,
                               memory_order_relaxed);
}

/* Wait for a module, which runs for two milliseconds at most, without Python. */
static void await(struct arkml_rows *rows) {
    for (uint32_t n = 1; !take(rows); n++) {
        if (n % 64) relax();
        else give_way(); /* the thread that has it may wait for this processor */
    }
}

static void give_back(struct arkml_rows *rows) {
    atomic_store_explicit(rows->taken, 0, memory_order_release);
}

static bool calls(struct arkml_rows *rows, union value *values, size_t count) {
    rows->error = rows->call(rows->context, rows->function, values, count, &rows->trap);
    return !rows->error && !rows->trap;
}

/* Run the function of a module that was taken on each row; return whether it has. */
static bool run_each(struct arkml_rows *rows) {
    const struct column *end = rows->columns + rows->inputs;
    for (size_t row = 0; row < rows->count; row++) {
        union value none;
        for (const struct column *one = rows->columns; one < end; one++)
            memcpy(one->place, one->rows + row * one->size, one->size);
        if (!calls(rows, &none, 0)) return false;
        for (const struct column *one = end; one < end + rows->outputs; one++)
            memcpy(one->rows + row * one->size, one->place, one->size);
    }
    return true;
}

/* Return whether the function has run on each row. */
ARKML_PUBLIC bool arkml_run_rows(struct arkml_rows *rows) {
    await(rows);
    bool have_run = run_each(rows);
    give_back(rows);
    return have_run;
}

/* Draw the noise of each row by the function of a module that was taken. */
static bool draw_each(struct arkml_rows *rows, const int64_t *streams, const int64_t *steps,
                      int32_t is_pink) {
    for (size_t row = 0; row < rows->count; row++) {
        union value values[3] = {{.i64 = streams[row]}, {.i64 = steps[row]}, {.i32 = is_pink}};
        if (!calls(rows, values, 3)) return false;
        memcpy(rows->columns->rows + row * rows->columns->size, rows->columns->place,
               rows->columns->size);
    }
    return true;
}

/* Return whether the function has written the noise of each row, of a stream at a step. */
ARKML_PUBLIC bool arkml_draw_rows(struct arkml_rows *rows, const int64_t *streams,
                                  const int64_t *steps, int32_t is_pink) {
    await(rows);
    bool are_drawn = draw_each(rows, streams, steps, is_pink);
    give_back(rows);
    return are_drawn;
}

/* ---- Calls of one guest ------------------------------------------------------------------- */

typedef void *(*bound_function)(void *session, const void *options, const void *binding);
typedef void (*release_function)(void *status);

/* A run of onnxruntime on the arrays of a binding: RunWithBinding and ReleaseStatus of its C API. */
struct arkml_bound {
    bound_function run;
    release_function release;
    void *session, *options, *binding;
    uint64_t is_flushed; /* numbers below 1e-38 are set to zero, where they make it slow */
};

/* What answers the submits of one session, while they have as many rows: one of both runs. */
struct arkml_answer {
    uint64_t record;   /* index of the session's record */
    uint64_t count_at; /* the address of COUNT in it */
    uint64_t metadata; /* the address of METADATA_USED in it */
    uint64_t count;    /* rows */
    struct arkml_rows *rows;
    const struct arkml_bound *bound;
    uint64_t is_of_guest; /* the guest is charged for the runs */
};

/* A guest that is called again and again. The last group is what its last call has left. */
struct arkml_single {
    struct arkml_round *round;
    int64_t place;
    uint64_t record; /* the address of RECORD */
    uint64_t errors; /* the address of TRAP, and of ERROR behind it */
    uint64_t noted;  /* the address of NOTED */
    const struct arkml_answer *answers;
    uint64_t answer_count;
    double room; /* seconds of a call after which Python looks at its budget */

    double models, policies;               /* seconds of runs, charged and not, of all calls */
    double began, models_then, policies_then; /* when the last call began: `used`, and these */
    double stretch;                        /* of the last stretch, if it was long: not charged */
    uint32_t is_of_model;                  /* it was a run of a model */
};

/* Return the answer to the submit in which a guest is suspended, NULL where Python has it. */
static const struct arkml_answer *answer_of(const struct arkml_single *single) {
    uint32_t record = word_at(single->record);
    for (uint64_t n = 0; n < single->answer_count; n++) {
        const struct arkml_answer *answer = &single->answers[n];
        if (answer->record == record)
            return word_at(answer->count_at) == answer->count && !word_at(answer->metadata)
                       ? answer
                       : NULL;
    }
    return NULL;
}

static bool has_run_bound(const struct arkml_bound *bound) {
#ifdef __x86_64__
    uint32_t before = bound->is_flushed ? _mm_getcsr() : 0;
    if (bound->is_flushed) _mm_setcsr(before | TO_ZERO);
#endif
    void *status = bound->run(bound->session, bound->options, bound->binding);
#ifdef __x86_64__
    if (bound->is_flushed) _mm_setcsr(before);
#endif
    if (status) bound->release(status);
    return !status;
}

/* Run the model of an answer; false leaves it to Python, which runs it again. */
static bool has_run(const struct arkml_answer *answer) {
    if (!answer) return false;
    if (answer->bound) return has_run_bound(answer->bound);
    if (!take(answer->rows)) return false;
    bool has = run_each(answer->rows);
    give_back(answer->rows);
    return has;
}

/* Run a call of a guest as far as no Python is needed, and return how it ended. */
ARKML_PUBLIC uint32_t arkml_call(struct arkml_single *single, const struct call *call) {
    struct arkml_round *round = single->round;
    int64_t place = single->place;
    uint64_t reason = round->reasons[place];
    double *used = &round->used[place];
    single->began = round->began[place] = *used;
    single->models_then = single->models;
    single->policies_then = single->policies;
    single->stretch = 0;
    single->is_of_model = 0;
    atomic_store_explicit(&round->runs, 1, memory_order_relaxed);
    double then = now();
    void *future = begin_call(round->begin, call);
    round->futures[place] = (uint64_t)(uintptr_t)future;
    uint32_t outcome = SUSPENDED;
    for (bool ended = false; !ended;) {
        ended = round->poll(future);
        double at = now(), ran = at - then;
        then = at;
        if (ran < round->long_stretch) *used += ran;
        else single->stretch = ran; /* how much of it is charged, Python finds out */
        if (ended) {
            round->futures[place] = 0;
            round->delete(future);
            const uint64_t *errors = pointer(single->errors);
            bool is_done = !errors[0] && !errors[1] && !word_at(single->noted) && !single->stretch;
            outcome = is_done ? DONE : LEFT_NEWS;
            break;
        }
        if (single->stretch || word_at(reason) != SUBMIT) break;
        const struct arkml_answer *answer = answer_of(single);
        if (!has_run(answer)) break;
        *(volatile uint32_t *)(uintptr_t)(reason + (uint64_t)round->answer) = 1;
        at = now(), ran = at - then;
        then = at;
        outcome = SPENT;
        if (!answer->is_of_guest) {
            single->policies += ran;
        } else if (ran < round->long_stretch) {
            single->models += ran;
            *used += ran;
        } else {
            single->stretch = ran;
            single->is_of_model = 1;
            break;
        }
        if (*used - single->began > single->room) break;
        outcome = SUSPENDED;
    }
    atomic_store_explicit(&round->runs, 0, memory_order_relaxed);
    return outcome;
}

/*
 * Copies of memories, of the pages that hold something: a guest touches a few pages of its memory,
 * and the others are zeros, to which Linux gives no room before they are written or read.
 */

#define PAGES_AT_ONCE 512
#define LOOKED_AT (256u << 10) /* bytes of memories, up to which nobody is asked about pages */

/* A memory, and a copy of its pages that hold something. */
struct memory {
    uint64_t base, size; /* in bytes, whole pages */
    uint64_t held;       /* the address of a byte for each page: 1 if the copy has it */
    uint64_t content;    /* the address of those pages, side by side */
    uint64_t count;      /* of them */
};

/* Return the file in which Linux says which pages it has given room, or a negative number. */
static int open_page_map(void) {
#ifdef __linux__
    return open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC); /* anew: a fork has another one */
#else
    return -1;
#endif
}

static void close_page_map(int map) {
#ifdef __linux__
    if (map >= 0) close(map);
#else
    (void)map;
#endif
}

/* Say of `count` pages at `address` whether they may hold something; all do if nobody knows. */
static void look_up(int map, uint64_t address, size_t count, size_t page, uint8_t *held) {
#ifdef __linux__
    uint64_t entries[PAGES_AT_ONCE];
    size_t size = count * sizeof *entries;
    if (map >= 0 && pread(map, entries, size, (off_t)(address / page * sizeof *entries)) ==
                        (ssize_t)size) {
        for (size_t n = 0; n < count; n++) held[n] = entries[n] >> 62 != 0; /* present, or swapped */
        return;
    }
#else
    (void)map, (void)address, (void)page;
#endif
    memset(held, 1, count);
}

static bool is_zero(const char *bytes, size_t size) {
    return !bytes[0] && !memcmp(bytes, bytes + 1, size - 1);
}

/* Return the page map, or a negative number if to look at these memories costs less than to ask. */
static int map_for(const struct memory *memories, size_t count) {
    uint64_t size = 0;
    for (size_t n = 0; n < count && size <= LOOKED_AT; n++) size += memories[n].size;
    return size <= LOOKED_AT ? -1 : open_page_map();
}

/* Note in `held` and `count` of each memory, [count], which of its pages hold something. */
ARKML_PUBLIC void arkml_find_pages(struct memory *memories, size_t count, size_t page) {
    int map = map_for(memories, count);
    for (size_t n = 0; n < count; n++) {
        struct memory *memory = &memories[n];
        uint8_t *held = pointer(memory->held);
        size_t pages = memory->size / page;
        memory->count = 0;
        for (size_t first = 0; first < pages; first += PAGES_AT_ONCE) {
            size_t some = pages - first < PAGES_AT_ONCE ? pages - first : PAGES_AT_ONCE;
            look_up(map, memory->base + first * page, some, page, held + first);
            const char *from = pointer(memory->base + first * page);
            for (size_t k = first; k < first + some; k++, from += page) {
                held[k] = held[k] && !is_zero(from, page); /* one that was only read is zero */
                memory->count += held[k];
            }
        }
    }
    close_page_map(map);
}

/* Copy the pages that `held` names from each memory, [count], to `content`. */
ARKML_PUBLIC void arkml_save_pages(const struct memory *memories, size_t count, size_t page) {
    for (size_t n = 0; n < count; n++) {
        const struct memory *memory = &memories[n];
        const uint8_t *held = pointer(memory->held);
        const char *from = pointer(memory->base);
        char *into = pointer(memory->content);
        for (size_t k = 0; k < memory->size / page; k++)
            if (held[k]) {
                memcpy(into, from + k * page, page);
                into += page;
            }
    }
}

/* Set each memory, [count], to its copy: to `content` in the pages of `held`, to zeros elsewhere. */
ARKML_PUBLIC void arkml_load_pages(const struct memory *memories, size_t count, size_t page) {
    int map = map_for(memories, count);
    for (size_t n = 0; n < count; n++) {
        const struct memory *memory = &memories[n];
        const uint8_t *held = pointer(memory->held);
        const char *from = pointer(memory->content);
        char *into = pointer(memory->base);
        size_t pages = memory->size / page;
        uint8_t present[PAGES_AT_ONCE];
        for (size_t k = 0; k < pages; k++, into += page) {
            if (k % PAGES_AT_ONCE == 0) {
                size_t some = pages - k < PAGES_AT_ONCE ? pages - k : PAGES_AT_ONCE;
                look_up(map, (uintptr_t)into, some, page, present);
            }
            if (held[k]) {
                memcpy(into, from, page);
                from += page;
            } else if (present[k % PAGES_AT_ONCE] && !is_zero(into, page)) {
                memset(into, 0, page); /* a page that is read only stays without room */
            }
        }
    }
    close_page_map(map);
}

/* ---- Workers ------------------------------------------------------------------------------ */

#ifndef _WIN32

static struct {
    pthread_mutex_t lock; /* of all below but the atomic ones */
    pthread_cond_t done;  /* the last worker has left the round */
    _Atomic uint64_t rounds;
    _Atomic bool is_taken; /* a round has the workers */
    struct job *job;       /* NULL while none may be joined */
    uint32_t wanted;       /* workers that may join it */
    _Atomic uint32_t joined; /* workers in it */
    uint32_t alive;
    bool ends;
    bool is_refused; /* the system has refused a thread */
    pthread_t threads[ARKML_MOST_THREADS];
    pthread_cond_t calls[ARKML_MOST_THREADS]; /* of one worker: a round wants it, or it is to end */
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

static const double SPIN = 50e-6; /* seconds for which a worker looks for the next round, awake */

/* Wait awake for a round after number `seen`, for `seconds`; return how long it took, or a
 * negative number if none came. */
static double spin(uint64_t seen, double seconds) {
    double began = now(), at = began;
    while (at - began < seconds) {
        for (int n = 0; n < 64; n++) {
            if (atomic_load_explicit(&pool.rounds, memory_order_acquire) != seen)
                return at - began;
            relax();
        }
        at = now();
    }
    return -1.0;
}

static void write_name(char name[16], uint32_t number) {
    memcpy(name, "arkml-000", 10);
    name[6] = (char)('0' + number / 100 % 10);
    name[7] = (char)('0' + number / 10 % 10);
    name[8] = (char)('0' + number % 10);
}

static void *work(void *argument) {
    uint32_t number = (uint32_t)(uintptr_t)argument;
#ifdef __APPLE__
    char name[16];
    write_name(name, number);
    pthread_setname_np(name); /* a thread of macOS names itself */
#endif
    uint64_t seen = 0;
    double patience = 0;
    for (;;) {
        if (patience > 0) {
            double began = now();
            bool has_come = spin(seen, patience) >= 0;
            /* Rounds that come at once are worth a wait. One during which the thread lost its
             * processor shows a busy machine. */
            if (!has_come || now() - began > 2 * SPIN) patience = 0;
        }
        pthread_mutex_lock(&pool.lock);
        bool slept = false;
        double began = 0;
        while (!pool.ends && !(pool.job && seen != pool.rounds)) {
            if (!slept) began = now();
            slept = true;
            if (!pool.job) seen = pool.rounds;
            pthread_cond_wait(&pool.calls[number - 1], &pool.lock);
        }
        if (pool.ends) {
            pthread_mutex_unlock(&pool.lock);
            return NULL;
        }
        seen = pool.rounds;
        if (slept && now() - began < SPIN) patience = SPIN;
        struct job *job = number <= pool.wanted ? pool.job : NULL;
        pool.joined += job != NULL;
        pthread_mutex_unlock(&pool.lock);
        if (!job) {
            patience = 0; /* a round of fewer threads: it sleeps until one calls it */
            continue;
        }
        struct findings found = {0};
        take_part(job, &found, number, false);
        pthread_mutex_lock(&pool.lock);
        add(job->round, &found, true);
        if (--pool.joined == 0) pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
}

/* Start workers until there are `wanted`; the caller has the lock. */
static void start_workers(uint32_t wanted) {
    sigset_t all, before;
    sigfillset(&all);
    /* Faults of wasm are signals, which wasmtime handles on the thread that runs it. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT};
    for (size_t n = 0; n < sizeof faults / sizeof *faults; n++) sigdelset(&all, faults[n]);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (pool.alive < wanted && !pool.is_refused) {
        uintptr_t number = pool.alive + 1;
        pthread_cond_init(&pool.calls[pool.alive], NULL);
        if (pthread_create(&pool.threads[pool.alive], NULL, work, (void *)number)) {
            pool.is_refused = true;
            break;
        }
#ifdef __linux__
        char name[16];
        write_name(name, (uint32_t)number);
        pthread_setname_np(pool.threads[pool.alive], name);
#endif
        pool.alive++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Wake up the first workers, `count` at most, that sleep; the caller has the lock. */
static void call_workers(uint32_t count) {
    for (uint32_t n = 0; n < count && n < pool.alive; n++) pthread_cond_signal(&pool.calls[n]);
}

/* Run a job with up to `wanted` workers, and alone if another round has them. */
static void run_together(struct job *job, struct findings *found, uint32_t wanted) {
    bool is_mine = !atomic_exchange_explicit(&pool.is_taken, true, memory_order_acquire);
    if (is_mine) {
        pthread_mutex_lock(&pool.lock);
        if (pool.alive < wanted) start_workers(wanted);
        pool.job = job;
        pool.wanted = wanted;
        atomic_fetch_add_explicit(&pool.rounds, 1, memory_order_release);
        call_workers(wanted);
        pthread_mutex_unlock(&pool.lock);
    }
    take_part(job, found, 0, true);
    if (!is_mine) return;
    pthread_mutex_lock(&pool.lock);
    pool.job = NULL; /* nobody joins it any more */
    pthread_mutex_unlock(&pool.lock);
    for (double since = now(); pool.joined && now() - since < SPIN;) relax();
    pthread_mutex_lock(&pool.lock);
    while (pool.joined) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    atomic_store_explicit(&pool.is_taken, false, memory_order_release);
}

/* End all workers, unless a round has them. The next round that wants some starts others. */
ARKML_PUBLIC void arkml_end_workers(void) {
    if (atomic_exchange_explicit(&pool.is_taken, true, memory_order_acquire)) return;
    pthread_mutex_lock(&pool.lock);
    uint32_t alive = pool.alive;
    pool.ends = true;
    call_workers(alive);
    pool.alive = 0;
    pthread_mutex_unlock(&pool.lock);
    for (uint32_t n = 0; n < alive; n++) pthread_join(pool.threads[n], NULL);
    pool.ends = pool.is_refused = false;
    atomic_store_explicit(&pool.is_taken, false, memory_order_release);
}

/* Forget the workers of the parent: a child process has none of them. */
ARKML_PUBLIC void arkml_after_fork(void) {
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.job = NULL;
    pool.joined = pool.alive = 0;
    pool.ends = pool.is_refused = false;
    atomic_store(&pool.is_taken, false);
    era++;
}

/* Return the number of workers, and in `is_refused` whether the system has refused one. */
ARKML_PUBLIC uint32_t arkml_workers(uint32_t *is_refused) {
    pthread_mutex_lock(&pool.lock);
    uint32_t alive = pool.alive;
    *is_refused = pool.is_refused;
    pthread_mutex_unlock(&pool.lock);
    return alive;
}

#else /* Windows: rounds run on their callers */

static void run_together(struct job *job, struct findings *found, uint32_t wanted) {
    (void)wanted;
    take_part(job, found, 0, true);
}

ARKML_PUBLIC void arkml_end_workers(void) {}

ARKML_PUBLIC void arkml_after_fork(void) {}

ARKML_PUBLIC uint32_t arkml_workers(uint32_t *is_refused) {
    *is_refused = 0;
    return 0;
}

#endif

/* ---- Rounds ------------------------------------------------------------------------------- */

static const double WORTH = 20e-6;  /* seconds of work for each thread that takes part */
static const uint32_t TRIALS = 8;    /* rounds of each way, which are compared, */
static const uint32_t LEAST = 3;     /* or three, if they are long; the first does not count, */
static const double ENOUGH = 10e-3;  /* since guests come from the caches of other cores */
static const uint32_t BETWEEN = 200; /* rounds until both ways are tried again; more where */
static const uint32_t DOUBLED = 6;   /* threads did not help, up to 2^6 times as many */
static const double GAIN = 0.9;      /* of the time alone, from which threads are used */

enum { TRY_ALONE, TRY_TOGETHER, DECIDED };

/* Return the seconds of one guest, 0 if none has run. */
static double of_one(const struct way *way) {
    return way->guests > 0 ? way->seconds / way->guests : 0;
}

/* Return the number of threads for a round of `count` guests. */
static uint32_t choose(const struct arkml_round *round, size_t count) {
    uint32_t most = round->threads;
    if (most > ARKML_MOST_THREADS) most = ARKML_MOST_THREADS;
    if (most > count) most = (uint32_t)count;
    if (most < 2 || !round->is_measured) return most ? most : 1;
    double worth = of_one(&round->alone) * (double)count / WORTH;
    if (worth < 2) return 1;
    if (worth < most) most = (uint32_t)worth;
    if (round->phase == DECIDED) return round->helps ? most : 1;
    return round->phase == TRY_TOGETHER ? most : 1;
}

/* Leave the guests to one thread for a while, each time for longer. */
static void give_up(struct arkml_round *round) {
    round->helps = 0;
    round->left = BETWEEN << round->doubled;
    if (round->doubled < DOUBLED) round->doubled++;
}

/*
 * Note what `ran` guests took together, in seconds of the clock, and decide whether threads help.
 *
 * Guests count, not rounds: what a round costs by itself is most of the time of a short one.
 */
static void learn(struct arkml_round *round, uint32_t threads, double seconds, uint64_t ran) {
    struct way *way = threads > 1 ? &round->together : &round->alone;
    double kept = 1.0;
    if (round->phase == DECIDED) {
        kept -= 1.0 / TRIALS; /* what was seen long ago counts less and less */
    } else if ((threads > 1) != (round->phase == TRY_TOGETHER)) {
        return;
    } else if (round->tried++ == 0) {
        return; /* threads are started, and caches are cold */
    } else if (round->tried == 2) {
        kept = 0; /* of what it was when it was tried before */
    }
    way->seconds = kept * way->seconds + seconds;
    way->guests = kept * way->guests + (double)ran;
    double alone = of_one(&round->alone), together = of_one(&round->together);
    if (round->phase == DECIDED) {
        /* The guests may have more to do now, or the machine: both ways are tried at once. */
        if (round->left-- == 0 || (threads > 1 && together > alone)) {
            round->phase = TRY_ALONE;
            round->tried = 0;
        }
        return;
    }
    if (round->tried <= TRIALS && (round->tried < LEAST || way->seconds < ENOUGH)) return;
    round->tried = 0;
    if (round->phase == TRY_ALONE) {
        round->phase = TRY_TOGETHER;
        return;
    }
    round->phase = DECIDED;
    round->helps = together < GAIN * alone;
    if (round->helps) {
        round->doubled = 0;
        round->left = BETWEEN;
    } else {
        give_up(round);
    }
}

/* Return the guests of a round that have not run. */
static uint64_t left_over(const struct arkml_round *round, size_t count) {
    return count - round->counts[ENDED] - round->counts[SUBMITTED] - round->counts[AT_FRAME_END] -
           round->counts[OTHER];
}

/*
 * Run each guest at `places`, [count], once; see the top of this file.
 *
 * With ARKML_ANSWER each is told first that its import returns zero; with ARKML_CHARGE its time is
 * added to `used`. With ARKML_GO_ON the guests that `outcomes` says have not run are run. Returns
 * false if the slice is over and some have not; call it again with ARKML_GO_ON.
 */
ARKML_PUBLIC bool arkml_run(struct arkml_round *round, const int64_t *places, size_t count,
                            uint32_t flags) {
    double began = now();
    if (!(flags & ARKML_GO_ON)) {
        memset(round->outcomes, NOT_RUN, count);
        memset(round->counts, 0, sizeof round->counts);
        round->seconds = round->elsewhere = round->wall = 0;
        round->is_late = 0;
    }
    if (!count) return true;
    uint64_t before = count - left_over(round, count);
    uint32_t threads = choose(round, count);
    struct job job; /* without a value for its many shares, which would take longer than a guest */
    job.round = round;
    job.places = places;
    job.flags = flags;
    job.share_count = threads;
    job.until = began + round->slice;
    atomic_init(&job.stops, false);
    for (uint32_t n = 0; n < threads; n++) {
        atomic_init(&job.shares[n].next, count * n / threads);
        job.shares[n].end = count * (n + 1) / threads;
    }
    struct findings found = {0};
    round->took_part = 0;
    atomic_store_explicit(&round->runs, 1, memory_order_relaxed);
    if (threads > 1)
        run_together(&job, &found, threads - 1);
    else
        take_part(&job, &found, 0, true);
    add(round, &found, false);
    atomic_store_explicit(&round->runs, 0, memory_order_relaxed);
    double took = now() - began;
    round->wall += took;
    uint64_t left = left_over(round, count);
    if (left < count - before && round->is_measured && round->threads > 1)
        learn(round, threads, took, count - before - left);
    return left == 0;
}
