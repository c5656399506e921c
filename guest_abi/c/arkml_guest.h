/*
 * A guest in C that learns: all but its game.
 *
 * A game fills in GAME: how an agent is placed, what it observes, how it moves and what it earns.
 * This file starts the run, pushes the rows of all agents, submits, applies the answers and begins
 * new episodes. Until the run has begun, the game stands still. Without a hive it is played with
 * GAME.policy or, where that is not given, a policy that answers zeros; the host may put another in
 * its place: `arkml run GUEST --policy FILE`.
 *
 * What a game may define before it includes this file:
 *
 *   MAX_AGENTS, MAX_FEATURES, MAX_ACTIONS, MAX_MASKS, MAX_BODY   room; the defaults are below
 *   SCORES            episodes in a mean, and from one report in the log to the next
 *   WITH_PROTOCOL     start the run with the learner's settings in GAME.protocol, by ml-v4
 *   DEMONSTRATIONS    begin the run with this number of episodes that GAME.show plays
 *   REMOTE_WORKERS    ask the hive for this number of workers
 *   WITHOUT_SEED      take no seed from the host
 *   WITHOUT_GAME      memory, text, log and math alone, for guests of another shape
 *   DECLARATIONS      types, text and math alone, for a compiler of another language
 *   GAME_ELSEWHERE    another file defines GAME
 *
 * Random numbers depend on the seed and the agent's id only, so that an episode does not depend on
 * the number of agents, unless they meet in one world.
 */
#ifndef ARKML_GUEST_H
#define ARKML_GUEST_H

#include "ark_core.h"
#include "ark_idle_policy.h"
#include "ark_ml.h"
#include "arkml_spec.h"

#define LENGTH(array) ((uint32_t)(sizeof(array) / sizeof(array)[0]))
/* A string literal as the two arguments of an import. */
#define TEXT(literal) ((const uint8_t *)(literal)), ((uint32_t)sizeof(literal) - 1)
/* Reports the message, as TEXT("no path"), and location to the host, and traps. */
#define PANIC(...) PANIC_OF(__VA_ARGS__)
#define PANIC_OF(message, length) \
    do { \
        ark_core_v2_register_panic(message, length, TEXT(__FILE_NAME__), __LINE__, 1); \
        __builtin_trap(); \
    } while (0)

/* Text under construction, cut at its capacity. */
typedef struct {
    uint32_t length;
    uint8_t bytes[256];
} Line;

static inline void add_bytes(Line *line, const uint8_t *bytes, uint32_t count) {
    for (uint32_t i = 0; i < count && line->length < LENGTH(line->bytes); i++) {
        line->bytes[line->length++] = bytes[i];
    }
}

static inline void add_number(Line *line, uint32_t number) {
    uint8_t digits[10];
    uint32_t start = LENGTH(digits);
    do {
        digits[--start] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    add_bytes(line, digits + start, LENGTH(digits) - start);
}

/* Two decimals, rounded. */
static inline void add_decimal(Line *line, float number) {
    if (number < 0) {
        add_bytes(line, TEXT("-"));
        number = -number;
    }
    uint32_t hundredths = (uint32_t)(number * 100.0f + 0.5f);
    add_number(line, hundredths / 100);
    add_bytes(line, TEXT("."));
    add_number(line, hundredths / 10 % 10);
    add_number(line, hundredths % 10);
}

static inline void log_line(ArkLogLevel level, const Line *line) {
    ark_core_v3_log(level, line->bytes, line->length);
}

static inline void return_bytes(const uint8_t *bytes, uint32_t count) {
    ark_core_v0_return_slice(bytes, count, count);
}

#define PI 3.14159265358979323846

/* The polynomials of fdlibm, for |x| up to a quarter of pi. */
static inline double sine_near_zero(double x) {
    double z = x * x;
    double sum = 1.58969099521155010221e-10;
    sum = sum * z - 2.50507602534068634195e-08;
    sum = sum * z + 2.75573137070700676789e-06;
    sum = sum * z - 1.98412698298579493134e-04;
    sum = sum * z + 8.33333333332248946124e-03;
    sum = sum * z - 1.66666666666666324348e-01;
    return x + x * z * sum;
}

static inline double cosine_near_zero(double x) {
    double z = x * x;
    double sum = -1.13596475577881948265e-11;
    sum = sum * z + 2.08757232129817482790e-09;
    sum = sum * z - 2.75573143513906633035e-07;
    sum = sum * z + 2.48015872894767294178e-05;
    sum = sum * z - 1.38888888888741095749e-03;
    sum = sum * z + 4.16666666666666019037e-02;
    return 1.0 - 0.5 * z + z * z * sum;
}

/* The sine of x plus a number of quarter turns. */
static inline double turned_sine(double x, uint32_t quarters) {
    double turns = __builtin_floor(x * (2.0 / PI) + 0.5);
    /* Half of pi in two parts: the product with the first one is exact. */
    double rest = (x - turns * 1.57079632673412561417) - turns * 6.07710050650619224932e-11;
    uint32_t quarter = ((uint32_t)(int32_t)turns + quarters) & 3;
    double found = quarter & 1 ? cosine_near_zero(rest) : sine_near_zero(rest);
    return quarter & 2 ? -found : found;
}

/* Exact to a few units in the last place while |x| is below a million. */
static inline double sine(double x) { return turned_sine(x, 0); }
static inline double cosine(double x) { return turned_sine(x, 1); }

/*
 * The part of a row that a guest declares with the kind "entities": the number of those that are
 * there, then room for `capacity` of them, of `width` features each.
 */
typedef struct {
    float *part;
    uint32_t capacity, width;
} Entities;

/* Begin the part without an entity: all of its 1 + capacity * width numbers become zeros. */
static inline Entities entities(float *part, uint32_t capacity, uint32_t width) {
    for (uint32_t i = 0; i < 1 + capacity * width; i++) {
        part[i] = 0.0f;
    }
    return (Entities){part, capacity, width};
}

/* Add an entity of `width` features, or leave it out and return false if there is no room. */
static inline bool add_entity(Entities *to, const float *features) {
    uint32_t count = (uint32_t)to->part[0];
    if (count == to->capacity) {
        return false;
    }
    for (uint32_t i = 0; i < to->width; i++) {
        to->part[1 + count * to->width + i] = features[i];
    }
    to->part[0] += 1.0f;
    return true;
}

#ifndef DECLARATIONS

extern uint8_t __heap_base;
static uint32_t heap_end;

/* A bump allocator that takes back only the newest block. */
ARK_EXPORT("ark_alloc") uint8_t *ark_alloc(uint32_t size, uint32_t align) {
    if (heap_end == 0) {
        heap_end = (uint32_t)&__heap_base;
    }
    uint64_t start = ((uint64_t)heap_end + align - 1) & ~((uint64_t)align - 1);
    uint64_t memory = (uint64_t)__builtin_wasm_memory_size(0) << 16;
    if (start + size > memory) {
        uint64_t pages = (start + size - memory + 0xffff) >> 16;
        if (pages > 0x10000 || __builtin_wasm_memory_grow(0, pages) == (size_t)-1) {
            return 0;
        }
    }
    heap_end = (uint32_t)(start + size);
    return (uint8_t *)(uintptr_t)start;
}

ARK_EXPORT("ark_free") void ark_free(uint8_t *ptr, uint32_t size, uint32_t align) {
    (void)align;
    if ((uint32_t)(uintptr_t)ptr + size == heap_end) {
        heap_end -= size;
    }
}

#endif

#ifndef WITHOUT_GAME

#ifndef MAX_AGENTS
#define MAX_AGENTS 256
#endif
#ifndef MAX_FEATURES
#define MAX_FEATURES 64
#endif
#ifndef MAX_ACTIONS
#define MAX_ACTIONS 8
#endif
#ifndef MAX_MASKS
#define MAX_MASKS 8
#endif
#ifndef MAX_BODY
#define MAX_BODY 8
#endif
#ifndef SCORES
#define SCORES 100
#endif
#ifndef REMOTE_WORKERS
#define REMOTE_WORKERS 0
#endif
#define LONGEST_RUN (24 * 60 * 60) /* seconds */

typedef struct {
    const uint8_t *bytes;
    uint32_t length;
} Text;

typedef struct {
    uint64_t id;
    uint64_t random;
    ArkEpisodeState state;
    uint32_t steps;
    float reward;
    double total;
    double body[MAX_BODY]; /* the game's */
} Agent;

typedef struct {
    Text name;                 /* of the run */
    uint32_t features, actions; /* of a row */
    uint32_t agents;
    uint32_t episode; /* steps after which it is interrupted */
    void (*place)(Agent *agent); /* begins an episode; the body is zeros */
    void (*observe)(const Agent *agent, float *features);
    bool (*move)(Agent *agent, const float *actions); /* sets reward; returns true at the end */
    /* The rest may be left out. */
    Text configuration; /* JSON; the object under "arkml" is for the hive */
    Text policy; /* ONNX: acts without a hive */
    Text metric; /* the name of the result of `measure` */
    float (*measure)(const Agent *agent); /* at the end of each episode */
    uint32_t (*mask)(const Agent *agent, ArkMetricV1 *masks); /* returns their number */
    void (*show)(Agent *agent, float *actions); /* of a demonstration */
#ifdef WITH_PROTOCOL
    ArkProtocolConfig protocol; /* without the widths, which are above */
#endif
} Game;

/* Uniform in [-1, 1). */
static inline double random_number(Agent *agent) {
    uint64_t z = agent->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) * (1.0 / 4503599627370496.0) - 1.0;
}

/* An action, clamped to [-1, 1]. */
static inline double within(float action) {
    return action > -1.0f ? (action < 1.0f ? (double)action : 1.0) : -1.0;
}

#ifndef DECLARATIONS

#ifdef GAME_ELSEWHERE
extern const Game GAME;
#else
static const Game GAME;
#endif

/* The id of the newest API that this guest needs; the host reads it before it starts it. */
#ifdef WITH_PROTOCOL
#define NEWEST_API ARK_ML_V4_ID
#else
#define NEWEST_API ARK_ML_V3_ID
#endif
__attribute__((visibility("default"), used)) const uint64_t ARK_API_ML = NEWEST_API;

typedef enum { WAITING, TRAINING, PLAYING } Mode;

static Agent agents[MAX_AGENTS];
static uint32_t agent_count, frame_count, episode_count, failure;
static uint64_t next_id = 1, seed;
static float scores[SCORES];
static Mode mode;
static ArkFutureHandle starting;
static ArkTrainingHandle training;
static ArkInferenceHandle inference;

static void spawn(Agent *agent) {
    *agent = (Agent){.id = next_id++, .state = ARK_EPISODE_STATE_INITIAL};
    agent->random = seed << 32 ^ agent->id * UINT64_C(0xd1342543de82ef95);
    GAME.place(agent);
}

static bool is_over(const Agent *agent) {
    return agent->state == ARK_EPISODE_STATE_TERMINAL ||
           agent->state == ARK_EPISODE_STATE_INTERRUPTED;
}

static void step(Agent *agent, const float *actions) {
    bool has_ended = GAME.move(agent, actions);
    agent->total += (double)agent->reward;
    agent->steps++;
    agent->state = has_ended                       ? ARK_EPISODE_STATE_TERMINAL
                   : agent->steps >= GAME.episode ? ARK_EPISODE_STATE_INTERRUPTED
                                                  : ARK_EPISODE_STATE_RUNNING;
}

ARK_EXPORT("mean_return") float mean_return(void) {
    uint32_t count = episode_count < SCORES ? episode_count : SCORES;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += (double)scores[i];
    }
    return count == 0 ? 0.0f : (float)(sum / count);
}

static void report(void) {
    Line line = {0};
    add_bytes(&line, TEXT("frame "));
    add_number(&line, frame_count);
    add_bytes(&line, TEXT(": "));
    add_number(&line, episode_count);
    add_bytes(&line, TEXT(" episodes, mean return "));
    add_decimal(&line, mean_return());
    log_line(ARK_LOG_LEVEL_INFO, &line);
}

static void say(ArkLogLevel level, Text what, ArkErrorCode code, Text so) {
    Line line = {0};
    add_bytes(&line, what.bytes, what.length);
    add_bytes(&line, TEXT(" answered "));
    add_number(&line, code);
    add_bytes(&line, so.bytes, so.length);
    log_line(level, &line);
}

static void fail(Text what, ArkErrorCode code) {
    failure = code;
    say(ARK_LOG_LEVEL_ERROR, what, code, (Text){TEXT(": the game stands still")});
}

static void write_width(uint8_t *model, const uint8_t places[2], uint32_t width) {
    for (uint32_t i = 0; i < 4; i++) {
        model[places[0] + i] = (uint8_t)(width >> 8 * i);
    }
    model[places[1]] = (uint8_t)(width | 0x80); /* a varint of three bytes */
    model[places[1] + 1] = (uint8_t)(width >> 7 | 0x80);
    model[places[1] + 2] = (uint8_t)(width >> 14 & 0x7f);
}

/* The policy of the game, or one that answers zeros. */
static Text policy_without_run(void) {
    static uint8_t model[sizeof ARK_IDLE_POLICY];
    if (GAME.policy.bytes != 0) {
        return GAME.policy;
    }
    for (uint32_t i = 0; i < sizeof model; i++) {
        model[i] = ARK_IDLE_POLICY[i];
    }
    write_width(model, (const uint8_t[])ARK_IDLE_FEATURES, GAME.features);
    write_width(model, (const uint8_t[])ARK_IDLE_ACTIONS, GAME.actions);
    return (Text){model, sizeof model};
}

/* Without a run the game is played with its own policy, or with the host's in its place. */
static void play(void) {
    Text policy = policy_without_run();
    ArkErrorCode code = ark_ml_v1_start_inference(GAME.features, GAME.actions, policy.bytes,
                                                  policy.length, ARK_SNAPSHOT_FORMAT_ONNX,
                                                  &inference);
    if (code != ARK_ERROR_CODE_SUCCESS) {
        fail((Text){TEXT("start_inference")}, code);
    }
    mode = PLAYING;
}

static ArkErrorCode start(void) {
    Text name = GAME.name, configuration = GAME.configuration;
    if (configuration.bytes == 0) {
        configuration = (Text){TEXT("{}")};
    }
#ifdef WITH_PROTOCOL
    ArkProtocolConfig protocol = GAME.protocol;
    protocol.feature_count = GAME.features;
    protocol.action_count = GAME.actions;
    return ark_ml_v4_start_training(TEXT("localhost"), 12356, name.bytes, name.length, name.bytes,
                                    name.length, REMOTE_WORKERS, configuration.bytes,
                                    configuration.length, TEXT(""), LONGEST_RUN, &protocol,
                                    &starting);
#else
    return ark_ml_v3_start_training(TEXT("localhost"), 12356, name.bytes, name.length, name.bytes,
                                    name.length, GAME.features, GAME.actions, REMOTE_WORKERS,
                                    configuration.bytes, configuration.length, TEXT(""),
                                    LONGEST_RUN, &starting);
#endif
}

static void begin(void) {
    ArkErrorCode code = start();
    if (code == ARK_ERROR_CODE_SUCCESS) {
        mode = WAITING;
    } else if (code == ARK_ERROR_CODE_UNAVAILABLE || code == ARK_ERROR_CODE_API_NOT_AVAILABLE) {
        say(ARK_LOG_LEVEL_INFO, (Text){TEXT("start_training")}, code, (Text){TEXT(": playing")});
        play();
    } else {
        fail((Text){TEXT("start_training")}, code);
    }
}

/* Check whether the run has started; if its start failed, play without it. */
static void await_training(void) {
    ArkPollSimple poll = {0};
    ArkErrorCode code = ark_ml_v1_poll_future_training_handle(starting, &poll);
    if (code == ARK_ERROR_CODE_SUCCESS) {
        if (!poll.ready) {
            return;
        }
        code = ark_ml_v1_take_future_training_handle(starting, &training);
    }
    if (code == ARK_ERROR_CODE_SUCCESS) {
        mode = TRAINING;
    } else {
        say(ARK_LOG_LEVEL_WARN, (Text){TEXT("the run")}, code, (Text){TEXT(": playing")});
        play();
    }
}

/* Write what a row says beside its features: masks, or the metric of an episode that ended. */
static uint32_t metadata_of(const Agent *agent, ArkMetricV1 *metadata) {
    if (!is_over(agent)) {
        return GAME.mask == 0 ? 0 : GAME.mask(agent, metadata);
    }
    if (GAME.measure == 0) {
        return 0;
    }
    *metadata = (ArkMetricV1){.value = GAME.measure(agent)};
    for (uint32_t i = 0; i < GAME.metric.length; i++) {
        metadata->name[i] = GAME.metric.bytes[i];
    }
    return 1;
}

static ArkErrorCode push(const Agent *agent) {
    static float features[MAX_FEATURES]; /* a picture would fill the stack */
    ArkMetricV1 metadata[MAX_MASKS];
    uint32_t width = GAME.features, count = metadata_of(agent, metadata);
    GAME.observe(agent, features);
    if (count != 0) {
        return mode == TRAINING ? ark_ml_v1_push_training_observation_with_metadata(
                                      training, agent->id, agent->state, agent->reward, features,
                                      width, 0, 0, metadata, count)
                                : ark_ml_v1_push_inference_observation_with_metadata(
                                      inference, agent->id, agent->state, agent->reward, features,
                                      width, metadata, count);
    }
    return mode == TRAINING
               ? ark_ml_v1_push_training_observation(training, agent->id, agent->state,
                                                     agent->reward, features, width, 0, 0, 1.0f)
               : ark_ml_v1_push_inference_observation(inference, agent->id, agent->state,
                                                      agent->reward, features, width, 1.0f);
}

#ifdef DEMONSTRATIONS
/* Submit one step of each demonstration that has not ended, with the actions of `GAME.show`. */
static bool demonstrate(void) {
    static Agent shown[DEMONSTRATIONS];
    static bool has_begun;
    uint32_t count = 0;
    for (uint32_t i = 0; i < DEMONSTRATIONS; i++) {
        Agent *agent = &shown[i];
        static float features[MAX_FEATURES];
        float actions[MAX_ACTIONS] = {0};
        if (!has_begun) {
            spawn(agent);
        }
        if (agent->id == 0) {
            continue;
        }
        GAME.observe(agent, features);
        if (!is_over(agent)) {
            GAME.show(agent, actions);
        }
        ArkErrorCode code = ark_ml_v1_push_training_observation(
            training, agent->id, agent->state, agent->reward, features, GAME.features, actions,
            GAME.actions, 1.0f);
        if (code != ARK_ERROR_CODE_SUCCESS) {
            fail((Text){TEXT("pushing a demonstration")}, code);
            return false;
        }
        count++;
        if (is_over(agent)) {
            agent->id = 0;
        } else {
            step(agent, actions);
        }
    }
    has_begun = true;
    ArkErrorCode code = count == 0
                            ? (ArkErrorCode)ARK_ERROR_CODE_SUCCESS
                            : ark_ml_v1_submit_training_demonstration_observations(training);
    if (code != ARK_ERROR_CODE_SUCCESS) {
        fail((Text){TEXT("submitting demonstrations")}, code);
    }
    return code == ARK_ERROR_CODE_SUCCESS;
}
#endif

static bool answer(float *actions, float *values) {
    for (uint32_t i = 0; i < agent_count; i++) {
        ArkErrorCode code = push(&agents[i]);
        if (code != ARK_ERROR_CODE_SUCCESS) {
            fail((Text){TEXT("pushing an observation")}, code);
            return false;
        }
    }
    uint32_t wanted = agent_count * GAME.actions;
    ArkErrorCode code = mode == TRAINING ? ark_ml_v1_submit_training_observations(
                                               training, actions, wanted, values, agent_count)
                                         : ark_ml_v1_submit_inference_observations(
                                               inference, actions, wanted, values, agent_count);
    if (code != ARK_ERROR_CODE_SUCCESS) {
        fail((Text){TEXT("submitting observations")}, code);
    }
    return code == ARK_ERROR_CODE_SUCCESS;
}

/* Start over with `agents`. May be called at any time, also before `ark_initialize`. */
ARK_EXPORT("configure") ArkErrorCode configure(uint32_t count, uint32_t wanted_seed) {
    if (count == 0 || count > MAX_AGENTS) {
        return ARK_ERROR_CODE_INVALID_ARGUMENTS;
    }
    agent_count = count;
    seed = wanted_seed;
    frame_count = episode_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        spawn(&agents[i]);
    }
    return ARK_ERROR_CODE_SUCCESS;
}

#ifdef WITHOUT_SEED
#define FIRST_SEED 0
#else
static uint32_t given_seed;
ARK_EXPORT("arkml_seed") void arkml_seed(uint64_t given) { given_seed = (uint32_t)given; }
#define FIRST_SEED given_seed
#endif

ARK_EXPORT("ark_initialize") void ark_initialize(void) {
    if (agent_count == 0) {
        configure(GAME.agents, FIRST_SEED);
    }
    begin();
}

ARK_EXPORT("ark_applet_update") void ark_applet_update(void) {
    static float actions[MAX_AGENTS * MAX_ACTIONS], values[MAX_AGENTS];
    if (failure == 0 && mode == WAITING) {
        await_training();
    }
    if (failure != 0 || mode == WAITING) {
        return;
    }
#ifdef DEMONSTRATIONS
    if (mode == TRAINING && !demonstrate()) {
        return;
    }
#endif
    if (!answer(actions, values)) {
        return;
    }
    uint32_t before = episode_count;
    frame_count++;
    for (uint32_t i = 0; i < agent_count; i++) {
        if (is_over(&agents[i])) {
            scores[episode_count++ % SCORES] = (float)agents[i].total;
            spawn(&agents[i]);
        } else {
            step(&agents[i], actions + i * GAME.actions);
        }
    }
    if (before / SCORES != episode_count / SCORES) {
        report();
    }
}

/* 0, or the code of the import that failed. */
ARK_EXPORT("status") uint32_t status(void) { return failure; }
/* 0 while the run starts, 1 while it trains, 2 without a run. */
ARK_EXPORT("mode") uint32_t current_mode(void) { return mode; }
ARK_EXPORT("frames") uint32_t frames(void) { return frame_count; }
ARK_EXPORT("episodes") uint32_t episodes(void) { return episode_count; }

#endif
#endif
#endif
