// BipedalWalker-v3 with the physics of the original, Box2D: the rules and constants are those of
// gymnasium/envs/box2d/bipedal_walker.py (Gymnasium, MIT license). HARDCORE makes it
// BipedalWalkerHardcore-v3.
#include "box2d/physics.h"

#ifdef HARDCORE
#define GAME_NAME "bipedal_walker_hardcore"
#define GAME_STEPS 2000
#else
#define GAME_NAME "bipedal_walker"
#define GAME_STEPS 1600
#endif
#define GAME_FEATURES 24
#define GAME_ACTIONS 4
#define GAME_SPACE {"continuous": 4, "low": -1, "high": 1}
#define GAME_LEG_LOW [-3.1415927, -5, -3.1415927, -5, 0]
#define GAME_LEG_HIGH [3.1415927, 5, 3.1415927, 5, 5]
#define GAME_PARTS                                                                              \
    {"name": "hull/angle", "shape": [1], "low": -3.1415927, "high": 3.1415927},                 \
    {"name": "hull/speed", "shape": [3], "low": -5, "high": 5},                                 \
    {"name": "first_leg", "shape": [5], "low": GAME_LEG_LOW, "high": GAME_LEG_HIGH},            \
    {"name": "second_leg", "shape": [5], "low": GAME_LEG_LOW, "high": GAME_LEG_HIGH},           \
    {"name": "lidar", "shape": [10], "low": -1, "high": 1}

class Game : public WorldGame {
  public:
    float features[GAME_FEATURES];

    void reset() {
        renew_world();
        build_terrain();
        for (int i = 0; i < LENGTH / 20 * 11; i++) {
            random_.random(); // for the clouds of the original
        }
        b2PolygonShape shape = polygon(HULL, 5);
        hull_ = moving(world_, START_X, START_Y, 0.0, fixture(shape, 5.0f, 0.1f), 0x0020);
        hull_->ApplyForceToCenter(b2Vec2((float)random_.uniform(-5.0, 5.0), 0.0f), true);
        build_leg(0, -1);
        build_leg(1, +1);
        const float idle[GAME_ACTIONS] = {0.0f};
        step(idle);
    }

    void step(const float *action) {
        float effort[GAME_ACTIONS];
        for (int i = 0; i < GAME_ACTIONS; i++) {
            float number = within(action[i]);
            float sign = number > 0.0f ? 1.0f : (number < 0.0f ? -1.0f : 0.0f);
            effort[i] = fabsf(number);
            joints_[i]->SetMotorSpeed((i % 2 == 0 ? HIP_SPEED : KNEE_SPEED) * sign);
            joints_[i]->SetMaxMotorTorque(TORQUE * effort[i]);
        }
        world_->Step((float)(1.0 / FPS), 6 * 30, 2 * 30);
        observe(effort);
    }

  private:
    static constexpr double FPS = 50.0, SCALE = 30.0, STEP = 14 / SCALE, HEIGHT = 400 / SCALE / 4;
    static constexpr double LEG_DOWN = -8 / SCALE, LEG_W = 8 / SCALE, LEG_H = 34 / SCALE;
    static constexpr double START_X = STEP * 20 / 2, START_Y = HEIGHT + 2 * LEG_H;
    static constexpr float TORQUE = 80.0f, HIP_SPEED = 4.0f, KNEE_SPEED = 6.0f, FRICTION = 2.5f;
    static constexpr int LENGTH = 200, GRASS_LENGTH = 10, START_PAD = 20, RAYS = 10;
    static constexpr double HULL[5][2] = {{-30 / SCALE, 9 / SCALE},
                                          {6 / SCALE, 9 / SCALE},
                                          {34 / SCALE, 1 / SCALE},
                                          {34 / SCALE, -8 / SCALE},
                                          {-30 / SCALE, -8 / SCALE}};
    enum Ground { GRASS, STUMP, STAIRS, PIT, GROUNDS };

    b2RevoluteJoint *joints_[4];

    void build_block(double left, double bottom, double right, double top) {
        const double corners[4][2] = {{left, top}, {right, top}, {right, bottom}, {left, bottom}};
        build_ground(polygon(corners, 4));
    }

    void build_ground(const b2Shape &shape) {
        b2BodyDef ground;
        b2FixtureDef definition = fixture(shape, 0.0f, FRICTION);
        world_->CreateBody(&ground)->CreateFixture(&definition);
    }

    void build_terrain() {
        double heights[LENGTH];
        double velocity = 0.0, y = HEIGHT, before = 0.0;
        int state = GRASS, counter = START_PAD, stairs = 0, width = 0, rise = 0;
        bool begins = false;
        for (int i = 0; i < LENGTH; i++) {
            double x = i * STEP;
            if (state == GRASS && !begins) {
                double way = HEIGHT - y;
                velocity = 0.8 * velocity + 0.01 * (way > 0.0 ? 1.0 : (way < 0.0 ? -1.0 : 0.0));
                if (i > START_PAD) {
                    velocity += random_.uniform(-1.0, 1.0) / SCALE;
                }
                y += velocity;
            } else if (state == PIT && begins) {
                counter = random_.integers(3, 5);
                double over = STEP * counter;
                build_block(x, y - 4 * STEP, x + STEP, y);
                build_block(x + over, y - 4 * STEP, x + STEP + over, y);
                counter += 2;
                before = y;
            } else if (state == PIT) {
                y = counter > 1 ? before - 4 * STEP : before;
            } else if (state == STUMP && begins) {
                counter = random_.integers(1, 3);
                build_block(x, y, x + counter * STEP, y + counter * STEP);
            } else if (state == STAIRS && begins) {
                rise = random_.random() > 0.5 ? 1 : -1;
                width = random_.integers(4, 5);
                stairs = random_.integers(3, 5);
                before = y;
                for (int s = 0; s < stairs; s++) {
                    build_block(x + s * width * STEP, y + (-1 + s * rise) * STEP,
                                x + (1 + s) * width * STEP, y + s * rise * STEP);
                }
                counter = stairs * width;
            } else if (state == STAIRS) {
                double n = (double)(stairs * width - counter - rise) / width;
                y = before + n * rise * STEP;
            }
            begins = false;
            heights[i] = y;
            if (--counter == 0) {
                counter = random_.integers(GRASS_LENGTH / 2, GRASS_LENGTH);
#ifdef HARDCORE
                state = state == GRASS ? random_.integers(1, GROUNDS) : (int)GRASS;
#endif
                begins = true;
            }
        }
        for (int i = 0; i < LENGTH - 1; i++) {
            build_ground(edge(i * STEP, heights[i], (i + 1) * STEP, heights[i + 1]));
        }
    }

    void build_leg(int number, int side) {
        b2PolygonShape upper_shape = box(LEG_W / 2, LEG_H / 2);
        b2PolygonShape lower_shape = box(0.8 * LEG_W / 2, LEG_H / 2);
        b2Body *upper = moving(world_, START_X, START_Y - LEG_H / 2 - LEG_DOWN, side * 0.05,
                               fixture(upper_shape, 1.0f, 0.2f), 0x0020);
        joints_[2 * number] = joint(hull_, upper, LEG_DOWN, side, -0.8, 1.1);
        feet_[number] = moving(world_, START_X, START_Y - LEG_H * 3 / 2 - LEG_DOWN, side * 0.05,
                               fixture(lower_shape, 1.0f, 0.2f), 0x0020);
        joints_[2 * number + 1] = joint(upper, feet_[number], -LEG_H / 2, 1, -1.6, -0.1);
    }

    b2RevoluteJoint *joint(b2Body *one, b2Body *other, double down, int speed, double lower,
                           double upper) {
        b2RevoluteJointDef definition;
        definition.bodyA = one;
        definition.bodyB = other;
        definition.referenceAngle = other->GetAngle() - one->GetAngle(); // as box2d-py sets it
        definition.localAnchorA.Set(0.0f, (float)down);
        definition.localAnchorB.Set(0.0f, (float)(LEG_H / 2));
        definition.enableMotor = definition.enableLimit = true;
        definition.maxMotorTorque = TORQUE;
        definition.motorSpeed = (float)speed;
        definition.lowerAngle = (float)lower;
        definition.upperAngle = (float)upper;
        return (b2RevoluteJoint *)world_->CreateJoint(&definition);
    }

    struct Ray : b2RayCastCallback {
        float fraction = 1.0f;

        float32 ReportFixture(b2Fixture *hit, const b2Vec2 &, const b2Vec2 &, float32 at) override {
            if ((hit->GetFilterData().categoryBits & 1) == 0) {
                return -1.0f;
            }
            return fraction = at;
        }
    };

    float distance(int number) const {
        const double range = 160 / SCALE;
        b2Vec2 from = hull_->GetPosition();
        b2Vec2 to((float)(from.x + sin(1.5 * number / 10.0) * range),
                  (float)(from.y - cos(1.5 * number / 10.0) * range));
        Ray ray;
        world_->RayCast(&ray, from, to);
        return ray.fraction;
    }

    void observe(const float *effort) {
        b2Vec2 at = hull_->GetPosition(), speed = hull_->GetLinearVelocity();
        features[0] = hull_->GetAngle();
        features[1] = (float)(2.0 * hull_->GetAngularVelocity() / FPS);
        features[2] = (float)(0.3 * speed.x * (600 / SCALE) / FPS);
        features[3] = (float)(0.3 * speed.y * (400 / SCALE) / FPS);
        for (int i = 0; i < 2; i++) {
            b2RevoluteJoint *hip = joints_[2 * i], *knee = joints_[2 * i + 1];
            float *leg = features + 4 + 5 * i;
            leg[0] = hip->GetJointAngle();
            leg[1] = (float)(hip->GetJointSpeed() / 4.0);
            leg[2] = (float)(knee->GetJointAngle() + 1.0);
            leg[3] = (float)(knee->GetJointSpeed() / 6.0);
            leg[4] = touches_[i] ? 1.0f : 0.0f;
        }
        for (int i = 0; i < RAYS; i++) {
            features[14 + i] = distance(i);
        }
        double shaping = 130.0 * at.x / SCALE - 5.0 * fabs((double)features[0]);
        reward = (float)gained(shaping);
        for (int i = 0; i < GAME_ACTIONS; i++) {
            reward -= (float)(0.00035 * 80) * effort[i];
        }
        terminated = has_crashed_ || at.x < 0.0f;
        if (terminated) {
            reward = -100.0f;
        }
        terminated = terminated || at.x > (LENGTH - GRASS_LENGTH) * STEP;
    }
};

#include "gymnasium/guest.h"
