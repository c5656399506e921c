// An environment of RLtools, whose headers come before this one, as the class that
// gymnasium/guest.h makes a guest of.
#include "gymnasium/numbers.h"

#define GAME_PARTIAL true

namespace rlt = rl_tools;
using Device = rlt::devices::DefaultWASM32; // also natively, so that numbers are the same
using Index = Device::index_t;

// `Environment` is one agent's; random numbers are RLtools', from a seed that numpy's spread.
template <typename Environment> class RltoolsGame {
  public:
    static constexpr Index FEATURES = Environment::Observation::DIM;
    static constexpr Index ACTIONS = Environment::ACTION_DIM;

    float features[FEATURES];
    float reward = 0.0f;
    bool terminated = false;

    void seed(uint32_t seed) {
        rlt::init(device_, random_, (Index)NumpyRandom(seed).integers(0, 1 << 30));
    }

    void reset() {
        rlt::sample_initial_parameters(device_, environment_, parameters_, random_);
        rlt::sample_initial_state(device_, environment_, parameters_, state_, random_);
        observe();
    }

    void step(const float *action) {
        rlt::Matrix<rlt::matrix::Specification<float, Index, 1, ACTIONS, false>> taken;
        for (Index i = 0; i < ACTIONS; i++) {
            rlt::set(taken, 0, i, action[i]);
        }
        typename Environment::State next;
        rlt::step(device_, environment_, parameters_, state_, taken, next, random_);
        reward = rlt::reward(device_, environment_, parameters_, state_, taken, next, random_);
        state_ = next;
        terminated = rlt::terminated(device_, environment_, parameters_, state_, random_);
        observe();
    }

  private:
    Device device_;
    Environment environment_;
    typename Environment::Parameters parameters_;
    typename Environment::State state_;
    rlt::devices::random::WASM32::ENGINE<> random_;

    void observe() {
        rlt::Matrix<rlt::matrix::Specification<float, Index, 1, FEATURES, false>> seen;
        rlt::observe(device_, environment_, parameters_, state_,
                     typename Environment::Observation{}, seen, random_);
        for (Index i = 0; i < FEATURES; i++) {
            features[i] = rlt::get(seen, 0, i);
        }
    }
};
