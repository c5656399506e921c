/*
 * A host for a guest of the arcade that is built natively with it: SOURCE is the guest's file.
 *
 * The rows of the last submit are kept for the caller, who gives the answers before it.
 */
#include <stdlib.h>

#include SOURCE

static const float *given; /* the answers for the rows that did not end, in their order */
static uint32_t most_rows, row_count, metric_count;
static uint8_t *states;
static float *row_rewards, *row_features, *metrics;

ArkErrorCode ark_ml_v3_start_training(
    const uint8_t *url, uint32_t url_length, uint32_t port, const uint8_t *game,
    uint32_t game_length, const uint8_t *name, uint32_t name_length, uint32_t features,
    uint32_t actions, uint32_t workers, const uint8_t *config, uint32_t config_length,
    const uint8_t *checkpoint, uint32_t checkpoint_length, uint64_t seconds,
    ArkFutureHandle *future) {
    *future = 1;
    return ARK_ERROR_CODE_SUCCESS;
}

ArkErrorCode ark_ml_v1_poll_future_training_handle(ArkFutureHandle handle, ArkPollSimple *poll) {
    poll->ready = true;
    return ARK_ERROR_CODE_SUCCESS;
}

ArkErrorCode ark_ml_v1_take_future_training_handle(ArkFutureHandle handle,
                                                   ArkTrainingHandle *training) {
    *training = 1;
    return ARK_ERROR_CODE_SUCCESS;
}

static ArkErrorCode keep(uint64_t id, ArkEpisodeState state, float reward, const float *features) {
    states[row_count] = (uint8_t)state;
    row_rewards[row_count] = reward;
    memcpy(row_features + (size_t)row_count * GAME_FEATURES, features,
           GAME_FEATURES * sizeof *features);
    row_count++;
    return ARK_ERROR_CODE_SUCCESS;
}

ArkErrorCode ark_ml_v1_push_training_observation(ArkTrainingHandle training, uint64_t id,
                                                 ArkEpisodeState state, float reward,
                                                 const float *features, uint32_t width,
                                                 const float *actions, uint32_t count,
                                                 float length) {
    return keep(id, state, reward, features);
}

ArkErrorCode ark_ml_v3_push_training_observation(ArkTrainingHandle training, uint64_t id,
                                                 ArkEpisodeState state, float reward,
                                                 const float *features, uint32_t width,
                                                 const float *actions, uint32_t action_count,
                                                 const ArkMetricV3 *named, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(named[i].name.bytes, "mask/", 5) != 0) {
            metrics[metric_count++] = named[i].value;
        }
    }
    return keep(id, state, reward, features);
}

ArkErrorCode ark_ml_v1_submit_training_observations(ArkTrainingHandle training, float *answers,
                                                    uint32_t answer_count, float *values,
                                                    uint32_t value_count) {
    const float *next = given;
    for (uint32_t i = 0; i < row_count; i++) {
        bool acts = states[i] == ARK_EPISODE_STATE_INITIAL || states[i] == ARK_EPISODE_STATE_RUNNING;
        for (uint32_t k = 0; k < ARCADE_ACTIONS; k++) {
            answers[i * ARCADE_ACTIONS + k] = acts ? *next++ : 0.0f;
        }
    }
    return ARK_ERROR_CODE_SUCCESS;
}

/* Start over with `count` copies. */
void native_reset(uint32_t count, uint32_t seed) {
    most_rows = 2 * count * GAME_AGENTS;
    states = realloc(states, most_rows);
    row_rewards = realloc(row_rewards, most_rows * sizeof *row_rewards);
    row_features = realloc(row_features, (size_t)most_rows * GAME_FEATURES * sizeof *row_features);
    metrics = realloc(metrics, (size_t)most_rows * (ARCADE_SCORES + 1) * sizeof *metrics);
    ark_initialize();
    configure(count, seed);
}

/* One frame: its rows stay until the next one. Returns their number. */
uint32_t native_frame(const float *answers) {
    given = answers;
    row_count = metric_count = 0;
    ark_applet_update();
    return row_count;
}

const uint8_t *native_states(void) { return states; }
const float *native_rewards(void) { return row_rewards; }
const float *native_features(void) { return row_features; }
const float *native_metrics(void) { return metrics; }
uint32_t native_metric_count(void) { return metric_count; }

/* The game alone: one step of all copies, without rows, by the answers of all agents in turn. */
void native_loop(const float *answers) {
    const float *next = answers;
    for (uint32_t i = 0; i < arcade_count; i++) {
        ArcadeCopy *copy = &arcade_copies[i];
        arcade_random = &copy->random;
        for (uint32_t k = 0; k < GAME_AGENTS * ARCADE_ACTIONS; k++) {
            copy->actions[k] = arcade_action(k % ARCADE_ACTIONS, *next++);
        }
        c_step(&copy->env);
    }
}
