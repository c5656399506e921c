/*
 * Games with PufferLib's convention in C (observations, actions, rewards, terminals; c_reset,
 * c_step; a Log of floats) as guests: this file is all of a guest but its game.
 *
 * A game defines these, includes this file, and then defines `set_up`:
 *
 *   GAME_HEADER       the header of the game, in quotes
 *   GAME_TYPE         the struct that its c_step takes
 *   GAME_NAME         the name of the guest, and of its agents' behavior
 *   GAME_OBSERVATION  the type of one number of an observation
 *   GAME_ACTION       the type of one number of an action
 *   GAME_FEATURES     the numbers of an agent's observation
 *   GAME_BRANCHES     the choices of each branch of an action, as in 5, 5, 3
 *   GAME_CONTINUOUS   in its place, the numbers of a continuous action, each in [-1, 1]
 *   GAME_PARTS        the parts of an observation, as JSON in the form of arkml.spec
 *   GAME_SCORES       the fields of its Log, each as SCORE(field)
 *
 * and these where they differ:
 *
 *   GAME_AGENTS       the agents of one copy: 1
 *   GAME_COPIES       the copies of a guest that nobody configures, a number in digits: 1024. A game
 *                     of several agents has to define it: as many as have 1,024 agents together
 *   GAME_CONFIG       the configuration of its run, as text: "{}"
 *   GAME_VALUE        the number that the game wants for a choice of a branch: the choice
 *   GAME_TERMINATED   true if the step ended the episode of an agent: its terminal is set
 *   GAME_TRUNCATED    true if the step cut it: of one agent, if the game logged without a terminal
 *   GAME_PRESENT      false while an agent is out of the game: always true
 *   GAME_MASKED       true for a choice that is impossible now: never
 *   GAME_HIDDEN       true for a number of an observation that agents see as 0: none. The guest then
 *                     declares that its rows do not show all, and agents learn with a memory
 *   GAME_PLACE        the place, in the game's observation, of a number of a row: the same
 *   GAME_ENDS_LATE    defined if a game starts over in the step after its last
 *
 * `configure(count, seed)` makes `count` copies. Most games start over in the step that ends an
 * episode, so that its last observation is gone: the last row of an agent repeats the observation
 * that it acted on, and the first row of its successor is in the same submit. What the game logged
 * is metadata of that last row; a game that logs in the middle has it in a row of its first agent.
 *
 * Chance comes from one generator for each copy, which is part of this file, on every system:
 * copies do not depend on each other, and a native build plays as the guest does.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ark_core.h"
#include "ark_ml.h"
#include "arkml_spec.h"

static uint64_t *arcade_random; /* the generator of the copy that is stepped */

/* A whole number from 0 to RAND_MAX, as of rand(). */
static inline int arcade_rand(void) {
    uint64_t z = *arcade_random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int)((z ^ (z >> 31)) >> 33);
}

#undef RAND_MAX
#define RAND_MAX 0x7fffffff
#define rand arcade_rand
#define random arcade_rand
#define rand_r(state) arcade_rand()
#define srand(seed) ((void)0)
#define clock_gettime(clock, to) ((void)(*(to) = (struct timespec){0}))
#define getpid() 0
#define exit(status) __builtin_trap()
#define printf(...) ((void)0)
#define fprintf(...) ((void)0)
#define perror(text) ((void)0)
#undef fflush
#define fflush(stream) ((void)0)

/* C libraries round these differently in float, and hardly ever as a double that becomes one. */
#define sinf(x) ((float)sin((double)(x)))
#define cosf(x) ((float)cos((double)(x)))
#define tanf(x) ((float)tan((double)(x)))
#define atan2f(y, x) ((float)atan2((double)(y), (double)(x)))
#define powf(x, y) ((float)pow((double)(x), (double)(y)))
#define acosf(x) ((float)acos((double)(x)))

/* In WebAssembly the C library's are calls, which took a quarter of a step of Pong. */
static inline float arcade_least(float x, float y) { return x < y || y != y ? x : y; }
static inline float arcade_most(float x, float y) { return x > y || y != y ? x : y; }
#define fminf arcade_least
#define fmaxf arcade_most

#include GAME_HEADER

#ifndef GAME_AGENTS
#define GAME_AGENTS 1
#endif
#ifndef GAME_COPIES
#if GAME_AGENTS != 1
#error "define GAME_COPIES: as many copies, in digits, as have 1,024 agents together"
#endif
#define GAME_COPIES 1024
#endif
#ifndef GAME_CONFIG
#define GAME_CONFIG "{}"
#endif
#ifndef GAME_VALUE
#define GAME_VALUE(branch, choice) (choice)
#endif
#ifndef GAME_TERMINATED
#define GAME_TERMINATED(copy, agent) ((copy)->terminals[agent] != 0)
#endif
#ifndef GAME_TRUNCATED
#define GAME_TRUNCATED(copy, agent) (GAME_AGENTS == 1 && (copy)->has_scores)
#endif
#ifndef GAME_PRESENT
#define GAME_PRESENT(copy, agent) true
#endif
#ifdef GAME_MASKED
#define ARCADE_IS_MASKED(copy, agent, branch, choice) GAME_MASKED(copy, agent, branch, choice)
#else
#define ARCADE_IS_MASKED(copy, agent, branch, choice) false
#endif

#ifdef GAME_HIDDEN
#define ARCADE_PARTIAL true
#else
#define ARCADE_PARTIAL false
#define GAME_HIDDEN(number) false
#endif
#ifndef GAME_PLACE
#define GAME_PLACE(number) (number)
#endif

#ifdef GAME_BRANCHES
static const int arcade_branches[] = {GAME_BRANCHES};
#define ARCADE_ACTIONS (sizeof arcade_branches / sizeof *arcade_branches)
#define ARCADE_SPACE {"discrete": [GAME_BRANCHES]}
#define ARCADE_BRANCHES ARCADE_ACTIONS
#define ARCADE_CHOICES(branch) arcade_branches[branch]
#else
#define ARCADE_ACTIONS GAME_CONTINUOUS
#define ARCADE_SPACE {"continuous": GAME_CONTINUOUS, "low": -1, "high": 1}
#define ARCADE_BRANCHES 0
#define ARCADE_CHOICES(branch) 0
#endif

#ifdef __wasm__
/* The words of JSON, and not the numbers that stdbool.h makes of them. */
#pragma push_macro("true")
#pragma push_macro("false")
#undef true
#undef false
SPEC_TEXT({"behaviors": {GAME_NAME: {"observations": [GAME_PARTS], "actions": ARCADE_SPACE,
                                     "partial": ARCADE_PARTIAL, "copies": GAME_COPIES}}});
#pragma pop_macro("true")
#pragma pop_macro("false")
#endif

static const char *const arcade_score_names[] = {
#define SCORE(field) #field,
    GAME_SCORES
#undef SCORE
        "n",
};
#define ARCADE_SCORES (sizeof arcade_score_names / sizeof *arcade_score_names - 1)

typedef struct {
    uint64_t id;
    ArkEpisodeState state; /* of its next row */
    float reward;
    uint32_t row; /* in the last submit */
    bool is_here; /* had a row in the last submit */
} ArcadeAgent;

typedef struct {
    GAME_TYPE env;
    uint64_t random;
    ArcadeAgent agents[GAME_AGENTS];
    float scores[ARCADE_SCORES + 1];
    bool has_scores;
    float rewards[GAME_AGENTS];
    unsigned char terminals[GAME_AGENTS];
    GAME_ACTION actions[GAME_AGENTS * ARCADE_ACTIONS];
    GAME_OBSERVATION observations[GAME_AGENTS * GAME_FEATURES];
    float features[GAME_AGENTS * GAME_FEATURES]; /* of the last row of each agent */
} ArcadeCopy;

/* Set the parameters of one copy, and call the game's own init if it has one. */
static void set_up(GAME_TYPE *env);

__attribute__((visibility("default"), used)) const uint64_t ARK_API_ML = ARK_ML_V3_ID;

#define ARCADE_MOST_COPIES 65536

static ArcadeCopy *arcade_copies;
static uint32_t arcade_count, arcade_rows;
static uint64_t arcade_next_id, arcade_seed;
static float *arcade_answers, *arcade_values;
static ArkFutureHandle arcade_starting;
static ArkTrainingHandle arcade_training;
static enum { ARCADE_IDLE, ARCADE_STARTING, ARCADE_TRAINING } arcade_mode;

static void arcade_require(ArkErrorCode code) {
    if (code != ARK_ERROR_CODE_SUCCESS) {
        __builtin_trap();
    }
}

static void *arcade_room(size_t count, size_t size) {
    void *room = calloc(count, size);
    if (room == 0) {
        __builtin_trap();
    }
    return room;
}

/* Take what the game has logged since it was last asked. */
static void arcade_take_scores(ArcadeCopy *copy) {
    float count = copy->env.log.n;
    if (count > 0.0f) {
        uint32_t i = 0;
#define SCORE(field) copy->scores[i++] = copy->env.log.field / count;
        GAME_SCORES
#undef SCORE
        (void)i;
        copy->has_scores = true;
        memset(&copy->env.log, 0, sizeof copy->env.log);
    }
}

static void arcade_take_step(ArcadeCopy *copy) {
    arcade_random = &copy->random;
    memset(copy->terminals, 0, sizeof copy->terminals);
    c_step(&copy->env);
    arcade_take_scores(copy);
    for (uint32_t i = 0; i < GAME_AGENTS; i++) {
        ArcadeAgent *agent = &copy->agents[i];
        agent->reward = copy->rewards[i];
        if (agent->is_here) {
            agent->state = GAME_TERMINATED(copy, i)  ? ARK_EPISODE_STATE_TERMINAL
                           : GAME_TRUNCATED(copy, i) ? ARK_EPISODE_STATE_INTERRUPTED
                                                     : ARK_EPISODE_STATE_RUNNING;
        }
    }
#ifdef GAME_ENDS_LATE
    if (copy->agents[0].state == ARK_EPISODE_STATE_TERMINAL) {
        c_step(&copy->env);
        arcade_take_scores(copy);
    }
#endif
}

/* Start over with `count` copies of the game. May be called at any time. */
ARK_EXPORT("configure") ArkErrorCode configure(uint32_t count, uint32_t seed) {
    if (count == 0 || count > ARCADE_MOST_COPIES) {
        return ARK_ERROR_CODE_INVALID_ARGUMENTS;
    }
    size_t most_rows = (size_t)2 * count * GAME_AGENTS;
    free(arcade_copies);
    free(arcade_answers);
    free(arcade_values);
    arcade_copies = arcade_room(count, sizeof *arcade_copies);
    arcade_answers = arcade_room(most_rows * ARCADE_ACTIONS, sizeof *arcade_answers);
    arcade_values = arcade_room(most_rows, sizeof *arcade_values);
    arcade_count = count;
    for (uint32_t i = 0; i < count; i++) {
        ArcadeCopy *copy = &arcade_copies[i];
        copy->random = (uint64_t)seed << 32 ^ (i + 1) * UINT64_C(0xd1342543de82ef95);
        copy->env.observations = (void *)copy->observations;
        copy->env.actions = (void *)copy->actions;
        copy->env.rewards = (void *)copy->rewards;
        copy->env.terminals = (void *)copy->terminals;
        arcade_random = &copy->random;
        set_up(&copy->env);
        c_reset(&copy->env);
        memset(&copy->env.log, 0, sizeof copy->env.log);
    }
    return ARK_ERROR_CODE_SUCCESS;
}

ARK_EXPORT("arkml_seed") void arkml_seed(uint64_t seed) { arcade_seed = seed; }

/* Without a run all agents take zeros. */
ARK_EXPORT("ark_initialize") void ark_initialize(void) {
    static const uint8_t NAME[] = GAME_NAME, HIVE[] = "localhost", CONFIG[] = GAME_CONFIG;
    ArkErrorCode code = ark_ml_v3_start_training(
        HIVE, sizeof HIVE - 1, 12356, NAME, sizeof NAME - 1, NAME, sizeof NAME - 1, GAME_FEATURES,
        ARCADE_ACTIONS, 0, CONFIG, sizeof CONFIG - 1, NAME, 0, 24 * 60 * 60, &arcade_starting);
    arcade_mode = code == ARK_ERROR_CODE_SUCCESS ? ARCADE_STARTING : ARCADE_IDLE;
}

static void arcade_name_metric(ArkMetricV3 *metric, const char *name) {
    while (name[metric->name.length] != 0) {
        metric->name.bytes[metric->name.length] = (uint8_t)name[metric->name.length];
        metric->name.length++;
    }
}

static uint32_t arcade_add_scores(ArcadeCopy *copy, ArkMetricV3 *metrics) {
    for (uint32_t i = 0; i < ARCADE_SCORES; i++) {
        metrics[i] = (ArkMetricV3){.value = copy->scores[i]};
        arcade_name_metric(&metrics[i], arcade_score_names[i]);
    }
    copy->has_scores = false;
    return ARCADE_SCORES;
}

static uint32_t arcade_add_masks(ArcadeCopy *copy, uint32_t agent, ArkMetricV3 *metrics) {
    uint32_t count = 0;
    for (uint32_t branch = 0; branch < ARCADE_BRANCHES; branch++) {
        for (int choice = 0; choice < ARCADE_CHOICES(branch); choice++) {
            if (ARCADE_IS_MASKED(copy, agent, branch, choice)) {
                char name[] = "mask/./..";
                name[5] = (char)('0' + branch);
                name[7] = (char)('0' + (choice < 10 ? choice : choice / 10));
                name[8] = (char)(choice < 10 ? 0 : '0' + choice % 10);
                metrics[count] = (ArkMetricV3){.value = 1.0f};
                arcade_name_metric(&metrics[count++], name);
            }
        }
    }
    (void)copy, (void)agent, (void)metrics;
    return count;
}

static void arcade_push(ArcadeCopy *copy, uint32_t number, bool takes_scores) {
    static ArkMetricV3 metrics[ARCADE_SCORES + 101];
    ArcadeAgent *agent = &copy->agents[number];
    const float *features = copy->features + number * GAME_FEATURES;
    uint32_t count = takes_scores ? arcade_add_scores(copy, metrics) : 0;
    if (agent->state == ARK_EPISODE_STATE_INITIAL || agent->state == ARK_EPISODE_STATE_RUNNING) {
        count += arcade_add_masks(copy, number, metrics + count);
    }
    arcade_require(count == 0 ? ark_ml_v1_push_training_observation(
                                    arcade_training, agent->id, agent->state, agent->reward,
                                    features, GAME_FEATURES, 0, 0, 1.0f)
                              : ark_ml_v3_push_training_observation(
                                    arcade_training, agent->id, agent->state, agent->reward,
                                    features, GAME_FEATURES, 0, 0, metrics, count));
    agent->row = arcade_rows++;
}

static bool arcade_has_ended(const ArcadeAgent *agent) {
    return agent->state == ARK_EPISODE_STATE_TERMINAL ||
           agent->state == ARK_EPISODE_STATE_INTERRUPTED;
}

/* The agent whose row has what the game logged: the first whose episode ended, or the first. */
static uint32_t arcade_reporter(const ArcadeCopy *copy) {
    uint32_t present = GAME_AGENTS;
    for (uint32_t i = 0; i < GAME_AGENTS; i++) {
        if (copy->agents[i].is_here && arcade_has_ended(&copy->agents[i])) {
            return i;
        }
        if (present == GAME_AGENTS && copy->agents[i].is_here) {
            present = i;
        }
    }
    return present;
}

static void arcade_push_all(ArcadeCopy *copy) {
    uint32_t reporter = copy->has_scores ? arcade_reporter(copy) : GAME_AGENTS;
    for (uint32_t i = 0; i < GAME_AGENTS; i++) {
        ArcadeAgent *agent = &copy->agents[i];
        bool is_reporter = i == reporter;
        if (agent->is_here && arcade_has_ended(agent)) {
            arcade_push(copy, i, is_reporter);
            agent->is_here = is_reporter = false;
        }
        if (!GAME_PRESENT(copy, i)) {
            continue;
        }
        if (!agent->is_here) {
            *agent = (ArcadeAgent){.id = ++arcade_next_id, .is_here = true};
            agent->state = ARK_EPISODE_STATE_INITIAL;
        }
        const GAME_OBSERVATION *observation = copy->observations + i * GAME_FEATURES;
        float *features = copy->features + i * GAME_FEATURES;
        for (uint32_t k = 0; k < GAME_FEATURES; k++) {
            uint32_t place = GAME_PLACE(k);
            features[k] = GAME_HIDDEN(place) ? 0.0f : (float)observation[place];
        }
        arcade_push(copy, i, is_reporter);
    }
}

/* Numbers out of range are brought into it: the game takes them as they come. */
static GAME_ACTION arcade_action(uint32_t number, float answer) {
#ifdef GAME_BRANCHES
    int last = arcade_branches[number] - 1;
    int choice = answer > 0.0f ? (answer < (float)last ? (int)answer : last) : 0;
    return (GAME_ACTION)(GAME_VALUE(number, choice));
#else
    return answer > -1.0f ? (answer < 1.0f ? answer : 1.0f) : -1.0f;
#endif
}

static void arcade_act(ArcadeCopy *copy) {
    for (uint32_t i = 0; i < GAME_AGENTS; i++) {
        const float *answer = arcade_answers + copy->agents[i].row * ARCADE_ACTIONS;
        for (uint32_t k = 0; k < ARCADE_ACTIONS; k++) {
            copy->actions[i * ARCADE_ACTIONS + k] =
                copy->agents[i].is_here ? arcade_action(k, answer[k]) : 0;
        }
    }
}

static bool arcade_is_training(void) {
    if (arcade_mode == ARCADE_STARTING) {
        ArkPollSimple poll = {0};
        arcade_require(ark_ml_v1_poll_future_training_handle(arcade_starting, &poll));
        if (poll.ready) {
            arcade_require(
                ark_ml_v1_take_future_training_handle(arcade_starting, &arcade_training));
            arcade_mode = ARCADE_TRAINING;
        }
    }
    return arcade_mode == ARCADE_TRAINING;
}

static void arcade_submit(void) {
    arcade_rows = 0;
    for (uint32_t i = 0; i < arcade_count; i++) {
        arcade_push_all(&arcade_copies[i]);
    }
    arcade_require(ark_ml_v1_submit_training_observations(
        arcade_training, arcade_answers, arcade_rows * ARCADE_ACTIONS, arcade_values, arcade_rows));
    for (uint32_t i = 0; i < arcade_count; i++) {
        arcade_act(&arcade_copies[i]);
    }
}

ARK_EXPORT("ark_applet_update") void ark_applet_update(void) {
    if (!arcade_is_training() && arcade_mode != ARCADE_IDLE) {
        return;
    }
    if (arcade_count == 0) {
        arcade_require(configure(GAME_COPIES, (uint32_t)arcade_seed));
    }
    if (arcade_mode == ARCADE_TRAINING) {
        arcade_submit();
    }
    for (uint32_t i = 0; i < arcade_count; i++) {
        arcade_take_step(&arcade_copies[i]);
    }
}
