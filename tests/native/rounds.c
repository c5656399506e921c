/*
 * Rounds of guests that are functions of this program, for the sanitizers of the C compiler.
 *
 * `make test-native` compiles it with the library's source: with AddressSanitizer and
 * UndefinedBehaviorSanitizer, and with ThreadSanitizer. It exits with 0 if all is as it should be.
 */

#include "../../host/arkml/native/arkml_native.c"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUESTS = 200, ROUNDS = 300 };

/* A control block, as far as rounds see it, and what the guest does. */
struct guest {
    uint32_t answer, reason;
    uint32_t kind, frames, turns;
    uint64_t sum;
};

static struct guest guests[GUESTS];

/* One poll: the kinds end, submit, come to the end of a frame, ask the host, or spend a turn. */
static bool poll_guest(void *future) {
    struct guest *guest = future;
    for (uint32_t n = 0; n < 200 * (guest->kind + 1); n++) guest->sum = guest->sum * 1664525 + n;
    guest->answer = 0;
    guest->frames++;
    switch (guest->kind % 5) {
    case 0: guest->reason = SUBMIT; return false;
    case 1: guest->reason = FRAME_END; return false;
    case 2: guest->reason = 17; return false;
    case 3: guest->reason = 0; return true;
    default: /* the first turn of a frame is spent, and the second submits */
        guest->reason = guest->turns++ % 2 ? SUBMIT : 0;
        return false;
    }
}

struct seen {
    uint64_t sums[GUESTS];
    uint64_t counts[OUTCOMES];
    uint32_t is_late;
};

static void check(bool is_so, const char *what) {
    if (is_so) return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

/* Play rounds on `threads` threads, each cut into slices of `slice` seconds. */
static struct seen play(uint32_t threads, double slice) {
    static uint64_t futures[GUESTS], reasons[GUESTS], memories[GUESTS];
    static double used[GUESTS], began[GUESTS];
    static uint8_t outcomes[GUESTS];
    static int64_t places[GUESTS];
    memset(guests, 0, sizeof guests);
    memset(used, 0, sizeof used);
    for (int n = 0; n < GUESTS; n++) {
        guests[n].kind = (uint32_t)n % 7;
        futures[n] = (uint64_t)(uintptr_t)&guests[n];
        reasons[n] = (uint64_t)(uintptr_t)&guests[n].reason;
        memories[n] = (uint64_t)(uintptr_t)&guests[n];
        places[n] = GUESTS - 1 - n;
    }
    struct arkml_round round = {
        .poll = poll_guest, .futures = futures, .reasons = reasons, .memories = memories,
        .used = used, .began = began, .answer = -4, .long_stretch = 1e-3, .slice = slice,
        .alert = 1e9, .threads = threads,
        .outcomes = outcomes,
    };
    for (int n = 0; n < ROUNDS; n++) {
        uint32_t flags = ARKML_ANSWER | (n % 2 ? ARKML_CHARGE : 0);
        while (!arkml_run(&round, places, GUESTS, flags)) flags |= ARKML_GO_ON;
        check(round.counts[NOT_RUN] == 0, "a guest did not run");
    }
    struct seen seen = {.is_late = round.is_late};
    memcpy(seen.counts, round.counts, sizeof seen.counts);
    for (int n = 0; n < GUESTS; n++) seen.sums[n] = guests[n].sum;
    return seen;
}

static _Atomic int begun, deleted;

static void *begin_guest(void *context, const void *function, const void *arguments, size_t count,
                         void *results, size_t result_count, void **trap, void **error) {
    (void)function, (void)arguments, (void)results, (void)trap, (void)error;
    check(count == 2 && result_count == 1, "arguments are mixed up");
    begun++;
    return context;
}

static void delete_guest(void *future) {
    check(future != NULL, "no call is deleted");
    deleted++;
}

/* Play rounds in which the calls of guests begin that are in none. */
static void play_calls(uint32_t threads, double slice) {
    static uint64_t futures[GUESTS], reasons[GUESTS], memories[GUESTS];
    static double used[GUESTS], began[GUESTS];
    static uint8_t outcomes[GUESTS];
    static int64_t places[GUESTS];
    static struct call calls[GUESTS];
    memset(guests, 0, sizeof guests);
    memset(futures, 0, sizeof futures);
    begun = deleted = 0;
    for (int n = 0; n < GUESTS; n++) {
        guests[n].kind = (uint32_t)n % 7;
        reasons[n] = (uint64_t)(uintptr_t)&guests[n].reason;
        memories[n] = (uint64_t)(uintptr_t)&guests[n];
        places[n] = n;
    }
    struct arkml_round round = {
        .poll = poll_guest, .futures = futures, .begin = begin_guest, .delete = delete_guest,
        .calls = calls, .reasons = reasons, .memories = memories, .used = used, .began = began,
        .answer = -4, .long_stretch = 1e-3, .slice = slice, .alert = 1e9, .threads = threads,
        .outcomes = outcomes,
    };
    int wanted = 0, ended = 0;
    for (int n = 0; n < ROUNDS; n++) {
        memset(calls, 0, sizeof calls);
        for (int index = 0; index < GUESTS; index++) {
            if (futures[index]) continue;
            calls[index] = (struct call){.context = (uint64_t)(uintptr_t)&guests[index],
                                         .argument_count = 2, .result_count = 1};
            wanted++;
        }
        uint32_t flags = ARKML_CHARGE;
        while (!arkml_run(&round, places, GUESTS, flags)) flags |= ARKML_GO_ON;
        ended += (int)round.counts[ENDED];
        for (int index = 0; index < GUESTS; index++)
            check((outcomes[index] == ENDED) == (futures[index] == 0), "an end is not one");
    }
    check(begun == wanted && deleted == ended && ended > 0, "calls are lost");
}

/* Copy from and to pieces of memory, of which one is missing. */
static void copy(void) {
    enum { SIZE = 5 };
    char pieces[4][SIZE], whole[4 * SIZE], back[4][SIZE];
    memset(back, 'b', sizeof back);
    uint64_t from[4], to[4];
    for (int n = 0; n < 4; n++) {
        memset(pieces[n], 'p' + n, SIZE);
        from[n] = n == 2 ? 0 : (uint64_t)(uintptr_t)pieces[n];
        to[n] = n == 1 ? 0 : (uint64_t)(uintptr_t)back[n];
    }
    arkml_gather(from, 4, SIZE, whole);
    arkml_scatter(to, 4, SIZE, whole);
    check(!memcmp(whole, "pppppqqqqq\0\0\0\0\0sssss", sizeof whole), "what is gathered");
    check(!memcmp(back, "pppppbbbbb\0\0\0\0\0sssss", sizeof back), "what is scattered");
}

/* Copy a memory of which some pages were never touched, and set another one to the copy. */
static void copy_pages(void) {
    enum { PAGES = 1100, WRITTEN = 3 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = PAGES * page;
    static const size_t written[WRITTEN] = {0, 511, 1099};
    char *memories[2];
    for (int n = 0; n < 2; n++) {
        memories[n] = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(memories[n] != MAP_FAILED, "no memory");
    }
    for (int n = 0; n < WRITTEN; n++) memset(memories[0] + written[n] * page, 'a' + n, page);
    memset(memories[1] + page, 'x', 600 * page);
    check(!memories[0][5 * page], "a page that is only read");
    uint8_t *held = malloc(PAGES);
    struct memory memory = {(uintptr_t)memories[0], size, (uintptr_t)held, 0, 0};
    arkml_find_pages(&memory, 1, page);
    check(memory.count == WRITTEN || memory.count == WRITTEN + 1, "pages that hold something");
    char *content = malloc(memory.count * page);
    memory.content = (uintptr_t)content;
    arkml_save_pages(&memory, 1, page);
    struct memory both[2] = {memory, memory};
    both[1].base = (uintptr_t)memories[1];
    memset(memories[0], 'y', size);
    arkml_load_pages(both, 2, page);
    for (size_t n = 0, next = 0; n < PAGES; n++) {
        char is = next < WRITTEN && n == written[next] ? (char)('a' + next++) : 0;
        for (int k = 0; k < 2; k++)
            check(memories[k][n * page] == is && memories[k][(n + 1) * page - 1] == is,
                  "a page of a copy");
    }
    uint8_t known[2];
    look_up(-1, (uintptr_t)memories[0], 2, page, known);
    check(known[0] && known[1], "pages of which nobody knows");
    free(content);
    free(held);
    for (int n = 0; n < 2; n++) munmap(memories[n], size);
}

static void read_global(void *context, const void *global, void *value) {
    uint32_t number = *(const uint32_t *)context + *(const uint32_t *)global;
    memcpy((char *)value + 8, &number, sizeof number);
}

static uint64_t count_pages(void *context, const void *memory) {
    return (uint32_t)(*(const uint32_t *)context + *(const uint32_t *)memory);
}

static void read_globals(void) {
    static const uint32_t numbers[] = {1, 0xFFFFFFF0u, 30};
    uint64_t contexts[2] = {(uint64_t)(uintptr_t)&numbers[0], (uint64_t)(uintptr_t)&numbers[1]};
    uint64_t globals[2] = {(uint64_t)(uintptr_t)&numbers[2], (uint64_t)(uintptr_t)&numbers[0]};
    uint32_t found[2][8] = {{0}};
    arkml_read_globals(read_global, contexts, globals, 2, sizeof *found, (char *)found);
    check(found[0][2] == 31 && found[1][2] == 0xFFFFFFF1u, "globals");
    uint64_t pages[2];
    arkml_memory_pages(count_pages, contexts, globals, 2, pages);
    check(pages[0] == 31 && pages[1] == 0xFFFFFFF1u, "pages of memories");
}

static int refused; /* what the error of a global that cannot be set points at */

static void *write_global(void *context, const void *global, const void *value) {
    if (!context) return &refused;
    memcpy((void *)(uintptr_t)global, (const char *)value + 8, sizeof(uint32_t));
    return NULL;
}

static void write_globals(void) {
    uint32_t set[3] = {0}, values[3][8] = {{0, 0, 5}, {0, 0, 6}, {0, 0, 7}};
    uint64_t contexts[3] = {1, 0, 1}, globals[3];
    for (int n = 0; n < 3; n++) globals[n] = (uint64_t)(uintptr_t)&set[n];
    void *error =
        arkml_write_globals(write_global, contexts, globals, 3, sizeof *values, (char *)values);
    check(error == &refused && set[0] == 5 && set[2] == 0, "globals up to an error");
    contexts[1] = 1;
    error = arkml_write_globals(write_global, contexts, globals, 3, sizeof *values, (char *)values);
    check(!error && set[0] == 5 && set[1] == 6 && set[2] == 7, "globals that are set");
}

static void *play_beside(void *argument) {
    (void)argument; /* another round has the workers, or this one: both end */
    static struct guest others[GUESTS];
    uint64_t futures[GUESTS], reasons[GUESTS], memories[GUESTS];
    double used[GUESTS] = {0}, began[GUESTS] = {0};
    uint8_t outcomes[GUESTS];
    int64_t places[GUESTS];
    for (int n = 0; n < GUESTS; n++) {
        futures[n] = (uint64_t)(uintptr_t)&others[n];
        reasons[n] = (uint64_t)(uintptr_t)&others[n].reason;
        memories[n] = 0;
        places[n] = n;
    }
    struct arkml_round round = {
        .poll = poll_guest, .futures = futures, .reasons = reasons, .memories = memories,
        .used = used, .began = began, .answer = -4, .long_stretch = 1e-3, .slice = 1,
        .alert = 1e9, .threads = 3, .is_measured = 1, .outcomes = outcomes,
    };
    for (int n = 0; n < ROUNDS; n++)
        while (!arkml_run(&round, places, GUESTS, ARKML_CHARGE)) continue;
    return NULL;
}

/* What rounds of 1,000 guests cost, in seconds: on one thread, on all, and in the first on all. */
struct costs {
    double alone, together, first;
};

/* Let `rounds` rounds be learned from, after each of them one of a single guest, which takes 3 us;
 * return how many ran on one thread. */
static uint32_t learn_from(struct arkml_round *round, struct costs costs, uint32_t rounds) {
    uint32_t alone = 0;
    for (uint32_t n = 0; n < rounds; n++) {
        uint32_t threads = choose(round, 1000);
        double together = costs.first ? costs.first : costs.together;
        alone += threads == 1;
        learn(round, threads, threads == 1 ? costs.alone : together, 1000);
        if (threads > 1) costs.first = 0;
        learn(round, choose(round, 1), 3e-6, 1);
    }
    return alone;
}

static void decide(void) {
    struct arkml_round faster = {.threads = 4, .is_measured = 1}, slower = faster;
    struct costs half = {200e-6, 100e-6, 400e-6}, more = {200e-6, 240e-6, 0};
    struct costs heavier = {500e-6, 250e-6, 0}, busy = {500e-6, 600e-6, 0};
    learn_from(&faster, half, 4 * TRIALS);
    check(faster.phase == DECIDED && faster.helps, "threads that have to be started first");
    learn_from(&slower, more, 4 * TRIALS);
    check(slower.phase == DECIDED && !slower.helps, "threads that are slower");
    check(learn_from(&faster, heavier, BETWEEN) < 4 * TRIALS, "threads where guests do more");
    check(learn_from(&faster, busy, BETWEEN) > BETWEEN - 4 * TRIALS, "threads that became slower");
    learn_from(&slower, half, 2 * BETWEEN);
    check(slower.helps, "threads that became faster");
    struct arkml_round tiny = {.threads = 4, .is_measured = 1};
    for (int n = 0; n < 4000; n++) { /* one of ten is held up */
        check(choose(&tiny, 1000) == 1, "a round that is too short to be shared");
        learn(&tiny, 1, n % 10 ? 20e-6 : 60e-6, 1000);
    }
}

/* A guest that submits twice in each call, and a module with one place for all who run it. */
struct single_guest {
    uint32_t answer, reason;
    uint32_t record, count, metadata, noted;
    uint64_t errors[2];
    uint32_t polls, asks;
    float seen, wanted;
};

static bool poll_single(void *future) {
    struct single_guest *guest = future;
    if (guest->polls++) check(guest->answer == 1, "a guest is resumed without an answer");
    if (guest->polls > 1) check(guest->wanted == 2 * guest->seen, "another guest's answer");
    guest->answer = 0;
    guest->reason = guest->polls > 2 ? 0 : guest->asks ? 17 : SUBMIT;
    if (guest->reason == 0) guest->polls = 0;
    guest->seen += 1;
    guest->count = 1;
    return guest->reason == 0;
}

static void *begin_single(void *context, const void *function, const void *arguments, size_t count,
                          void *results, size_t result_count, void **trap, void **error) {
    (void)function, (void)arguments, (void)count, (void)results, (void)result_count;
    (void)trap, (void)error;
    return context;
}

static float module_memory[2];

static void *call_module(void *context, const void *function, void *values, size_t count,
                         void **trap) {
    (void)context, (void)function, (void)values, (void)count, (void)trap;
    module_memory[1] = 2 * module_memory[0];
    return NULL;
}

static _Atomic uint32_t taken;

static _Thread_local struct single_guest *fails;

static void *run_session(void *session, const void *options, const void *binding) {
    struct single_guest *guest = session;
    (void)options, (void)binding;
    guest->wanted = 2 * guest->seen;
    return fails;
}

static void release_status(void *status) { check(status == fails, "another status is released"); }

static void *call_one(void *argument) {
    (void)argument;
    struct single_guest guest = {.seen = 1000};
    static _Atomic int numbers;
    guest.seen = (float)(10000 * ++numbers);
    uint64_t futures[1] = {0};
    uint64_t reasons[1] = {(uint64_t)(uintptr_t)&guest.reason};
    double used[1] = {0}, began[1] = {0};
    struct arkml_round round = {
        .poll = poll_single, .futures = futures, .begin = begin_single, .delete = delete_guest,
        .reasons = reasons, .used = used, .began = began, .answer = -4, .long_stretch = 1e9,
    };
    struct column columns[2] = {
        {(char *)&guest.seen, (char *)&module_memory[0], sizeof(float)},
        {(char *)&guest.wanted, (char *)&module_memory[1], sizeof(float)},
    };
    struct arkml_rows rows = {.call = call_module, .taken = &taken, .count = 1, .inputs = 1,
                              .outputs = 1, .columns = columns};
    struct arkml_answer answer = {
        .count_at = (uint64_t)(uintptr_t)&guest.count, .count = 1, .rows = &rows, .is_of_guest = 1,
        .metadata = (uint64_t)(uintptr_t)&guest.metadata,
    };
    struct arkml_single single = {
        .round = &round, .record = (uint64_t)(uintptr_t)&guest.record, .answers = &answer,
        .errors = (uint64_t)(uintptr_t)guest.errors, .answer_count = 1, .room = 1e9,
        .noted = (uint64_t)(uintptr_t)&guest.noted,
    };
    struct call call = {.context = (uint64_t)(uintptr_t)&guest};
    for (int n = 0; n < 2000; n++) {
        uint32_t outcome = arkml_call(&single, &call);
        while (outcome == SUSPENDED) { /* another thread ran the module: Python would answer */
            check(futures[0] != 0, "a call is lost");
            check(arkml_run_rows(&rows), "a module");
            guest.answer = 1;
            bool ended = poll_single(&guest);
            if (ended) futures[0] = 0;
            outcome = ended ? DONE : SUSPENDED;
        }
        check(outcome == DONE && !futures[0], "a call that does not end");
    }
    check(single.models >= 0 && used[0] >= single.models, "time is not charged");
    struct arkml_bound bound = {run_session, release_status, &guest, NULL, NULL};
    answer.bound = &bound;
    check(arkml_call(&single, &call) == DONE, "a run of onnxruntime");
    fails = &guest;
    check(arkml_call(&single, &call) == SUSPENDED && guest.reason == SUBMIT, "a run that fails");
    fails = NULL;
    answer.bound = NULL;
    guest.polls = 0;
    guest.noted = 1;
    uint32_t outcome;
    while ((outcome = arkml_call(&single, &call)) == SUSPENDED) guest.polls = 0;
    check(outcome == LEFT_NEWS, "news are missed");
    guest.asks = 1;
    check(arkml_call(&single, &call) == SUSPENDED && futures[0], "a request is not left");
    guest.asks = 0;
    single.room = -1;
    guest.polls = 0;
    while ((outcome = arkml_call(&single, &call)) == SUSPENDED) guest.polls = 0;
    check(outcome == SPENT, "a call without an end");
    return NULL;
}

static void call_singles(void) {
    pthread_t threads[3];
    for (int n = 0; n < 3; n++)
        check(!pthread_create(&threads[n], NULL, call_one, NULL), "no thread");
    for (int n = 0; n < 3; n++) pthread_join(threads[n], NULL);
    check(!taken, "a module stays taken");
    taken = era; /* by a thread of the parent, which this process has not */
    era++;
    call_one(NULL);
}

int main(void) {
    decide();
    struct seen alone = play(1, 1);
    check(alone.counts[SUBMITTED] > 0 && alone.counts[OTHER] > 0, "kinds of guests are missing");
    static const uint32_t threads[] = {2, 3, 8, 64};
    for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
        struct seen seen = play(threads[n], n % 2 ? 1 : 0);
        check(!memcmp(&seen, &alone, sizeof seen), "results depend on the threads");
    }
    for (size_t n = 0; n < sizeof threads / sizeof *threads; n++)
        play_calls(threads[n], n % 2 ? 1 : 0);
    call_singles();
    copy();
    copy_pages();
    read_globals();
    write_globals();
    pthread_t other;
    check(!pthread_create(&other, NULL, play_beside, NULL), "no thread");
    struct seen seen = play(4, 1);
    pthread_join(other, NULL);
    check(!memcmp(&seen, &alone, sizeof seen), "results depend on another round");
    for (int n = 0; n < 20; n++) {
        arkml_end_workers();
        play(2, 1);
    }
    pid_t child = fork();
    if (!child) {
        arkml_after_fork();
        uint32_t is_refused;
        bool is_new = arkml_workers(&is_refused) == 0;
        struct seen forked = play(1, 1);
        _exit(is_new && !memcmp(&forked, &alone, sizeof forked) ? 0 : 1);
    }
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "a fork");
    arkml_end_workers();
    puts("rounds: fine");
    return 0;
}
