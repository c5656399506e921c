// MountainCarContinuous-v0: the rules and constants are those of
// gymnasium/envs/classic_control/continuous_mountain_car.py (Gymnasium, MIT license).
#include "gymnasium/numbers.h"

#ifndef GAME_NAME
#define GAME_NAME "mountain_car_continuous"
#endif
#define GAME_FEATURES 2
#define GAME_ACTIONS 1
#define GAME_SPACE {"continuous": 1, "low": -1, "high": 1}
#define GAME_STEPS 999
#define GAME_MOST_COPIES 65536
#define GAME_PARTS                                                                              \
    {"name": "position", "shape": [1], "low": -1.2, "high": 0.6},                               \
    {"name": "velocity", "shape": [1], "low": -0.07, "high": 0.07}

class Game {
  public:
    float features[GAME_FEATURES];
    float reward = 0.0f;
    bool terminated = false;

    void seed(uint32_t seed) { random_ = NumpyRandom(seed); }

    void reset() {
        start_ = random_.uniform(-0.6, -0.4);
        is_at_start_ = true;
        features[0] = (float)start_;
        features[1] = 0.0f;
    }

    // The original's state is in double at the start, and in float after the first step.
    void step(const float *action) {
        if (is_at_start_) {
            move(start_, 0.0, action[0]);
        } else {
            move(features[0], features[1], action[0]);
        }
        is_at_start_ = false;
        terminated = features[0] >= (float)GOAL && features[1] >= 0.0f;
        reward = (float)((terminated ? 100.0 : 0.0) - (double)action[0] * action[0] * 0.1);
    }

  private:
    static constexpr double LEFT = -1.2, RIGHT = 0.6, GOAL = 0.45;
    static constexpr double FASTEST = 0.07, POWER = 0.0015, GRAVITY = 0.0025;

    NumpyRandom random_;
    double start_ = 0.0;
    bool is_at_start_ = false;

    template <typename Number> void move(Number position, Number velocity, float action) {
        double slope = GRAVITY * cos((double)((Number)3 * position));
        float force = within(action);
        // numpy computes with the number of an action in float, and with a limit of it in double.
        velocity += force == action ? (Number)(force * (float)POWER - (float)slope)
                                    : (Number)(force * POWER - slope);
        velocity = velocity > (Number)FASTEST ? (Number)FASTEST : velocity;
        velocity = velocity < (Number)-FASTEST ? (Number)-FASTEST : velocity;
        position += velocity;
        position = position > (Number)RIGHT ? (Number)RIGHT : position;
        position = position < (Number)LEFT ? (Number)LEFT : position;
        if (position == (Number)LEFT && velocity < 0) {
            velocity = 0;
        }
        features[0] = (float)position;
        features[1] = (float)velocity;
    }
};

#include "gymnasium/guest.h"
