// LunarLander-v3 with the physics of the original, Box2D: the rules and constants are those of
// gymnasium/envs/box2d/lunar_lander.py (Gymnasium, MIT license) without wind. CONTINUOUS makes it
// LunarLanderContinuous-v3. Its particles are left out, as without rendering there: they touch
// nothing that counts.
#include "box2d/physics.h"

#ifndef GAME_NAME
#define GAME_NAME "lunar_lander"
#endif
#ifdef CONTINUOUS
#define GAME_ACTIONS 2
#define GAME_SPACE {"continuous": 2, "low": -1, "high": 1}
#else
#define GAME_ACTIONS 1
#define GAME_SPACE {"discrete": [4]}
#endif
#define GAME_FEATURES 8
#define GAME_STEPS 1000
#define GAME_PARTS                                                                              \
    {"name": "position", "shape": [2], "low": -2.5, "high": 2.5},                               \
    {"name": "velocity", "shape": [2], "low": -10, "high": 10},                                 \
    {"name": "angle", "shape": [1], "low": -6.2831855, "high": 6.2831855},                      \
    {"name": "spin", "shape": [1], "low": -10, "high": 10},                                     \
    {"name": "contact", "shape": [2], "low": 0, "high": 1}

class Game : public WorldGame {
  public:
    float features[GAME_FEATURES];

    void reset() {
        renew_world();
        build_moon();
        b2PolygonShape shape = polygon(HULL, 6);
        hull_ = moving(world_, W / 2, H, 0.0, fixture(shape, 5.0f, 0.1f), 0x0010);
        double push_x = random_.uniform(-INITIAL_RANDOM, INITIAL_RANDOM);
        double push_y = random_.uniform(-INITIAL_RANDOM, INITIAL_RANDOM);
        hull_->ApplyForceToCenter(b2Vec2((float)push_x, (float)push_y), true);
        build_leg(0, -1);
        build_leg(1, +1);
        const float idle[GAME_ACTIONS] = {0.0f};
        step(idle);
    }

    void step(const float *action) {
        double main = 0.0, side = 0.0, direction = 0.0;
#ifdef CONTINUOUS
        double throttle = within(action[0]), lateral = within(action[1]);
        if (throttle > 0.0) {
            main = (throttle + 1.0) * 0.5;
        }
        if (fabs(lateral) > 0.5) {
            direction = lateral > 0.0 ? 1.0 : -1.0;
            side = fabs(lateral);
        }
#else
        int engine = choice(action[0], 3);
        if (engine == 2) {
            main = 1.0;
        } else if (engine != 0) {
            direction = engine - 2;
            side = 1.0;
        }
#endif
        fire(main, side, direction);
        world_->Step((float)(1.0 / FPS), 6 * 30, 2 * 30);
        observe(main, side);
    }

  private:
    static constexpr double FPS = 50.0, SCALE = 30.0, W = 600 / SCALE, H = 400 / SCALE;
    static constexpr double MAIN_POWER = 13.0, SIDE_POWER = 0.6, INITIAL_RANDOM = 1000.0;
    static constexpr double LEG_AWAY = 20, LEG_DOWN = 18, PAD = H / 4;
    static constexpr double HULL[6][2] = {
        {-14 / SCALE, 17 / SCALE},  {-17 / SCALE, 0 / SCALE}, {-17 / SCALE, -10 / SCALE},
        {17 / SCALE, -10 / SCALE}, {17 / SCALE, 0 / SCALE},  {14 / SCALE, 17 / SCALE}};
    static constexpr int CHUNKS = 11;

    void build_moon() {
        double height[CHUNKS + 1], smooth[CHUNKS];
        for (double &one : height) {
            one = random_.uniform(0.0, H / 2);
        }
        for (int i = CHUNKS / 2 - 2; i <= CHUNKS / 2 + 2; i++) {
            height[i] = PAD;
        }
        for (int i = 0; i < CHUNKS; i++) {
            smooth[i] = 0.33 * (height[i == 0 ? CHUNKS : i - 1] + height[i] + height[i + 1]);
        }
        b2BodyDef ground;
        b2Body *moon = world_->CreateBody(&ground);
        b2EdgeShape bottom = edge(0, 0, W, 0);
        b2FixtureDef definition = fixture(bottom, 0.0f, 0.2f);
        moon->CreateFixture(&definition);
        for (int i = 0; i < CHUNKS - 1; i++) {
            b2EdgeShape slope =
                edge(W / (CHUNKS - 1) * i, smooth[i], W / (CHUNKS - 1) * (i + 1), smooth[i + 1]);
            definition = fixture(slope, 0.0f, 0.1f);
            moon->CreateFixture(&definition);
        }
    }

    void build_leg(int number, int side) {
        b2PolygonShape shape = box(2 / SCALE, 8 / SCALE);
        feet_[number] = moving(world_, W / 2 - side * LEG_AWAY / SCALE, H, side * 0.05,
                               fixture(shape, 1.0f, 0.2f), 0x0020);
        b2RevoluteJointDef joint;
        joint.bodyA = hull_;
        joint.bodyB = feet_[number];
        joint.referenceAngle = feet_[number]->GetAngle(); // as box2d-py sets it
        joint.localAnchorB.Set((float)(side * LEG_AWAY / SCALE), (float)(LEG_DOWN / SCALE));
        joint.enableMotor = joint.enableLimit = true;
        joint.maxMotorTorque = 40.0f;
        joint.motorSpeed = (float)(0.3 * side);
        joint.lowerAngle = (float)(side < 0 ? 0.9 - 0.5 : -0.9);
        joint.upperAngle = (float)(side < 0 ? 0.9 : -0.9 + 0.5);
        world_->CreateJoint(&joint);
    }

    // The place of the side engines depends on the angle, as in the original.
    void fire(double main, double side, double direction) {
        double tip_x = sin((double)hull_->GetAngle()), tip_y = cos((double)hull_->GetAngle());
        double side_x = -tip_y, side_y = tip_x;
        double along = random_.uniform(-1.0, 1.0) / SCALE;
        double across = random_.uniform(-1.0, 1.0) / SCALE;
        if (main > 0.0) {
            double x = tip_x * (4 / SCALE + 2 * along) + side_x * across;
            double y = -tip_y * (4 / SCALE + 2 * along) - side_y * across;
            b2Vec2 at = hull_->GetPosition();
            push(-x * MAIN_POWER * main, -y * MAIN_POWER * main, at.x + x, at.y + y);
        }
        if (side > 0.0) {
            double away = 3 * across + direction * 12 / SCALE;
            double x = tip_x * along + side_x * away;
            double y = -tip_y * along - side_y * away;
            b2Vec2 at = hull_->GetPosition();
            push(-x * SIDE_POWER * side, -y * SIDE_POWER * side, at.x + x - tip_x * 17 / SCALE,
                 at.y + y + tip_y * 14 / SCALE);
        }
    }

    void push(double x, double y, double at_x, double at_y) {
        hull_->ApplyLinearImpulse(b2Vec2((float)x, (float)y), b2Vec2((float)at_x, (float)at_y),
                                  true);
    }

    void observe(double main, double side) {
        b2Vec2 at = hull_->GetPosition(), speed = hull_->GetLinearVelocity();
        double state[GAME_FEATURES] = {
            (at.x - W / 2) / (W / 2), (at.y - (PAD + LEG_DOWN / SCALE)) / (H / 2),
            speed.x * (W / 2) / FPS, speed.y * (H / 2) / FPS,
            hull_->GetAngle(), 20.0 * hull_->GetAngularVelocity() / FPS,
            touches_[0] ? 1.0 : 0.0, touches_[1] ? 1.0 : 0.0};
        double shaping = -100 * sqrt(state[0] * state[0] + state[1] * state[1]) -
                         100 * sqrt(state[2] * state[2] + state[3] * state[3]) -
                         100 * fabs(state[4]) + 10 * state[6] + 10 * state[7];
        double gain = gained(shaping);
        gain -= main * 0.30;
        gain -= side * 0.03;
        terminated = false;
        if (has_crashed_ || fabs(state[0]) >= 1.0) {
            terminated = true;
            gain = -100;
        }
        if (!hull_->IsAwake()) {
            terminated = true;
            gain = 100;
        }
        reward = (float)gain;
        for (int i = 0; i < GAME_FEATURES; i++) {
            features[i] = (float)state[i];
        }
    }
};

#include "gymnasium/guest.h"
