// Acrobot-v1: the rules and constants are those of gymnasium/envs/classic_control/acrobot.py
// (Gymnasium, MIT license), with the equations of the book and without noise.
#include "gymnasium/numbers.h"

#ifndef GAME_NAME
#define GAME_NAME "acrobot"
#endif
#define GAME_FEATURES 6
#define GAME_ACTIONS 1
#define GAME_SPACE {"discrete": [3]}
#define GAME_STEPS 500
#define GAME_MOST_COPIES 65536
#define GAME_PARTS                                                                              \
    {"name": "first_angle", "shape": [2], "low": -1, "high": 1},                                \
    {"name": "second_angle", "shape": [2], "low": -1, "high": 1},                               \
    {"name": "first_speed", "shape": [1], "low": -12.566371, "high": 12.566371},                \
    {"name": "second_speed", "shape": [1], "low": -28.274334, "high": 28.274334}

class Game {
  public:
    float features[GAME_FEATURES];
    float reward = 0.0f;
    bool terminated = false;

    void seed(uint32_t seed) { random_ = NumpyRandom(seed); }

    // The original's state is in float at the start, and so are its sines; then in double.
    void reset() {
        for (double &number : state_) {
            number = (float)random_.uniform(-0.1, 0.1);
        }
        for (int i = 0; i < 2; i++) {
            features[2 * i] = small_cosine((float)state_[i]);
            features[2 * i + 1] = small_sine((float)state_[i]);
            features[4 + i] = (float)state_[2 + i];
        }
    }

    void step(const float *action) {
        move(choice(action[0], 2) - 1.0);
        for (int i = 0; i < 2; i++) {
            state_[i] = wrapped(state_[i]);
            state_[2 + i] = fmin(fmax(state_[2 + i], -FASTEST[i]), FASTEST[i]);
            features[2 * i] = (float)cos(state_[i]);
            features[2 * i + 1] = (float)sin(state_[i]);
            features[4 + i] = (float)state_[2 + i];
        }
        terminated = -cos(state_[0]) - cos(state_[1] + state_[0]) > 1.0;
        reward = terminated ? 0.0f : -1.0f;
    }

  private:
    static constexpr double PI = 3.141592653589793, STEP = 0.2, G = 9.8;
    static constexpr double LENGTH = 1.0, MASS = 1.0, CENTER = 0.5, INERTIA = 1.0; // of each link
    static constexpr double FASTEST[2] = {4 * PI, 9 * PI};

    typedef double State[4]; // two angles, and their speeds

    NumpyRandom random_;
    State state_ = {0.0};

    static double wrapped(double angle) {
        while (angle > PI) {
            angle -= 2 * PI;
        }
        while (angle < -PI) {
            angle += 2 * PI;
        }
        return angle;
    }

    // One step of Runge and Kutta's method of fourth order.
    void move(double torque) {
        State k1, k2, k3, k4, at;
        find_slopes(state_, torque, k1);
        go_along(k1, STEP / 2.0, at);
        find_slopes(at, torque, k2);
        go_along(k2, STEP / 2.0, at);
        find_slopes(at, torque, k3);
        go_along(k3, STEP, at);
        find_slopes(at, torque, k4);
        for (int i = 0; i < 4; i++) {
            state_[i] += STEP / 6.0 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
        }
    }

    void go_along(const State &slopes, double time, State &at) const {
        for (int i = 0; i < 4; i++) {
            at[i] = state_[i] + time * slopes[i];
        }
    }

    static void find_slopes(const State &at, double torque, State &slopes) {
        double speed1 = at[2], speed2 = at[3], cosine2 = cos(at[1]), sine2 = sin(at[1]);
        double d1 = MASS * (CENTER * CENTER) +
                    MASS * (LENGTH * LENGTH + CENTER * CENTER + 2 * LENGTH * CENTER * cosine2) +
                    INERTIA + INERTIA;
        double d2 = MASS * (CENTER * CENTER + LENGTH * CENTER * cosine2) + INERTIA;
        double phi2 = MASS * CENTER * G * cos(at[0] + at[1] - PI / 2.0);
        double phi1 = -MASS * LENGTH * CENTER * (speed2 * speed2) * sine2 -
                      2 * MASS * LENGTH * CENTER * speed2 * speed1 * sine2 +
                      (MASS * CENTER + MASS * LENGTH) * G * cos(at[0] - PI / 2) + phi2;
        double pull = MASS * LENGTH * CENTER * (speed1 * speed1) * sine2;
        slopes[0] = speed1;
        slopes[1] = speed2;
        slopes[3] = (torque + d2 / d1 * phi1 - pull - phi2) /
                    (MASS * (CENTER * CENTER) + INERTIA - d2 * d2 / d1);
        slopes[2] = -(d2 * slopes[3] + phi1) / d1;
    }

    // numpy's sine and cosine in float of a small angle, by polynomials (numpy, BSD license): their
    // last bit is another than a C library's for one angle in some thousand.
    static float small_sine(float angle) {
        float square = angle * angle;
        float sum = added(0x1.7d3bbcp-19f, square, -0x1.a06bbap-13f);
        sum = added(sum, square, 0x1.11119ap-7f);
        sum = added(sum, square, -0x1.555556p-3f);
        return added(sum * square, angle, angle);
    }

    static float small_cosine(float angle) {
        float square = angle * angle;
        float sum = added(0x1.98e616p-16f, square, -0x1.6c06dcp-10f);
        sum = added(sum, square, 0x1.55553cp-5f);
        sum = added(sum, square, -0.5f);
        return added(sum, square, 1.0f);
    }

    // A product and a sum, rounded once.
    static float added(float one, float other, float sum) {
        return (float)((double)one * other + sum);
    }
};

#include "gymnasium/guest.h"
