// A game of Gymnasium or RLtools as a guest: what a game includes last, after its class `Game`
// (seed, reset, step, features, reward, terminated) and
//
//   GAME_NAME         the name of the guest, and of its agents' behavior
//   GAME_FEATURES     the numbers of an observation, of which GAME_PARTS are the parts
//   GAME_ACTIONS      the numbers of an action, and GAME_SPACE in the form of arkml.spec
//   GAME_STEPS        the steps after which an episode is cut
//   GAME_COPIES       the copies of a guest that nobody configures, a number in digits: 16
//   GAME_MOST_COPIES  the copies that fit into the memory that a host gives by default
//   GAME_CONFIG       the configuration of its run, as text: "{}"
//   GAME_PARTIAL      true if a row does not show all that matters: false
//   GAME_HIDDEN       true for a number of an observation that agents see as 0: none. The guest then
//                     declares that its rows do not show all, and agents learn with a memory
//
// `configure(count, seed)` makes `count` copies, each with one agent. The first starts as
// Gymnasium's environment does after reset(seed=seed), the next as after seed + 1, and so on; later
// episodes go on with the same random numbers, as after reset(). The last row of an episode has
// its score and its length as metadata; the next submit has the first row of the next one.
#ifdef __wasm__
#include "ark_core.h"
#include "ark_ml.h"
#include "arkml_spec.h"

#ifdef GAME_HIDDEN
#define GAME_PARTIAL true
#else
#define GAME_HIDDEN(number) false
#endif
#ifndef GAME_PARTIAL
#define GAME_PARTIAL false
#endif
#ifndef GAME_COPIES
#define GAME_COPIES 16
#endif
#ifndef GAME_CONFIG
#define GAME_CONFIG "{}"
#endif
SPEC_TEXT({"behaviors": {GAME_NAME: {"observations": [GAME_PARTS], "actions": GAME_SPACE,
                                     "partial": GAME_PARTIAL, "copies": GAME_COPIES}}});

extern "C" {
extern const uint64_t ARK_API_ML;
__attribute__((visibility("default"), used)) const uint64_t ARK_API_ML = ARK_ML_V3_ID;
}

struct Copy {
    Game game;
    uint64_t id = 0;
    ArkEpisodeState state = ARK_EPISODE_STATE_TERMINAL;
    float score = 0.0f;
    uint32_t length = 0;

    bool has_ended() const {
        return state == ARK_EPISODE_STATE_TERMINAL || state == ARK_EPISODE_STATE_INTERRUPTED;
    }
};

static Copy *copies;
static uint32_t copy_count;
static uint64_t last_id, default_seed;
static float *answers, *values;
static ArkFutureHandle starting;
static ArkTrainingHandle training;
static enum { IDLE, STARTING, TRAINING } mode;

static void require(ArkErrorCode code) {
    if (code != ARK_ERROR_CODE_SUCCESS) {
        __builtin_trap();
    }
}

static ArkMetricV3 metric(const char *name, float value) {
    ArkMetricV3 made = {};
    made.value = value;
    made.name.length = (uint8_t)strlen(name);
    memcpy(made.name.bytes, name, strlen(name));
    return made;
}

static void push(const Copy &copy) {
    float seen[GAME_FEATURES];
    for (uint32_t i = 0; i < GAME_FEATURES; i++) {
        seen[i] = GAME_HIDDEN(i) ? 0.0f : copy.game.features[i];
    }
    if (!copy.has_ended()) {
        require(ark_ml_v1_push_training_observation(training, copy.id, copy.state, copy.game.reward,
                                                    seen, GAME_FEATURES, 0, 0, 1.0f));
        return;
    }
    const ArkMetricV3 metrics[] = {metric("score", copy.score),
                                   metric("length", (float)copy.length)};
    require(ark_ml_v3_push_training_observation(training, copy.id, copy.state, copy.game.reward,
                                                seen, GAME_FEATURES, 0, 0, metrics,
                                                sizeof metrics / sizeof *metrics));
}

static void start_episode(Copy &copy) {
    copy.game.reset();
    copy.game.reward = copy.score = 0.0f;
    copy.length = 0;
    copy.id = ++last_id;
    copy.state = ARK_EPISODE_STATE_INITIAL;
}

static void take_step(Copy &copy, const float *action) {
    copy.game.step(action);
    copy.score += copy.game.reward;
    copy.length++;
    copy.state = copy.game.terminated           ? ARK_EPISODE_STATE_TERMINAL
                 : copy.length >= GAME_STEPS ? ARK_EPISODE_STATE_INTERRUPTED
                                             : ARK_EPISODE_STATE_RUNNING;
}

// Start over with `count` copies of the game. May be called at any time.
extern "C" ARK_EXPORT("configure") ArkErrorCode configure(uint32_t count, uint32_t seed) {
    if (count == 0 || count > GAME_MOST_COPIES) {
        return ARK_ERROR_CODE_INVALID_ARGUMENTS;
    }
    delete[] copies;
    delete[] answers;
    delete[] values;
    copies = new Copy[count];
    answers = new float[count * GAME_ACTIONS]();
    values = new float[count]();
    copy_count = count;
    for (uint32_t i = 0; i < count; i++) {
        copies[i].game.seed(seed + i);
        start_episode(copies[i]);
    }
    return ARK_ERROR_CODE_SUCCESS;
}

extern "C" ARK_EXPORT("arkml_seed") void arkml_seed(uint64_t seed) { default_seed = seed; }

// Without a run all agents take zeros.
extern "C" ARK_EXPORT("ark_initialize") void ark_initialize(void) {
    static const uint8_t NAME[] = GAME_NAME, HIVE[] = "localhost", CONFIG[] = GAME_CONFIG;
    ArkErrorCode code = ark_ml_v3_start_training(
        HIVE, sizeof HIVE - 1, 12356, NAME, sizeof NAME - 1, NAME, sizeof NAME - 1, GAME_FEATURES,
        GAME_ACTIONS, 0, CONFIG, sizeof CONFIG - 1, NAME, 0, 24 * 60 * 60, &starting);
    mode = code == ARK_ERROR_CODE_SUCCESS ? STARTING : IDLE;
}

static void look_for_run() {
    ArkPollSimple poll = {};
    require(ark_ml_v1_poll_future_training_handle(starting, &poll));
    if (poll.ready) {
        require(ark_ml_v1_take_future_training_handle(starting, &training));
        mode = TRAINING;
    }
}

extern "C" ARK_EXPORT("ark_applet_update") void ark_applet_update(void) {
    if (mode == STARTING) {
        look_for_run();
        if (mode == STARTING) {
            return;
        }
    }
    if (copy_count == 0) {
        require(configure(GAME_COPIES, (uint32_t)default_seed));
    }
    if (mode == TRAINING) {
        for (uint32_t i = 0; i < copy_count; i++) {
            push(copies[i]);
        }
        require(ark_ml_v1_submit_training_observations(
            training, answers, copy_count * GAME_ACTIONS, values, copy_count));
    }
    for (uint32_t i = 0; i < copy_count; i++) {
        if (copies[i].has_ended()) {
            start_episode(copies[i]);
        } else {
            take_step(copies[i], answers + i * GAME_ACTIONS);
        }
    }
}
#endif
