// Box2D 2.3 in one piece, from the sources of box2d-py 2.3.8 as they are: what a game includes
// first. The archive's Box2D folder and the folder of this file are where headers are looked for.
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>

// The sine, or with `quarters` 1 the cosine, of angles below 120 as glibc rounds them: a last bit
// that differs makes another trajectory. It is that of Arm's optimized routines (MIT license).
inline float sine_of(float angle, int quarters) {
    double x = (double)angle, sign = 1.0;
    if (!(fabs(x) < 120.0)) {
        return (float)(quarters == 0 ? ::sin(x) : ::cos(x));
    }
    if (fabs(x) < 0x1p-12) {
        return quarters == 0 ? angle : 1.0f;
    }
    if (!(fabs(x) < 0x1.92p-1)) {
        int n = ((int32_t)(x * 0x1.45F306DC9C883p+23) + 0x800000) >> 24;
        x -= n * 0x1.921FB54442D18p0;
        quarters ^= n & 1;
        sign = (n & 2) != 0 ? -1.0 : 1.0;
        x = (n & 3) == 1 || (n & 3) == 2 ? -x : x;
    }
    double square = x * x;
    if (quarters == 0) {
        double cube = x * square, low = 0x1.1107605230bc4p-7 - square * 0x1.994eb3774cf24p-13;
        return (float)(x - cube * 0x1.555545995a603p-3 + cube * square * low);
    }
    double fourth = square * square;
    double low = -0x1.6c087e89a359dp-10 + square * 0x1.99343027bf8c3p-16;
    double high = 1.0 - square * 0x1.ffffffd0c621cp-2 + fourth * 0x1.55553e1068f19p-5;
    return (float)(sign * (high + fourth * square * low));
}

#define sinf(x) sine_of(x, 0)
#define cosf(x) sine_of(x, 1)

// The settings are read first, for the archive's assertions throw Python's errors.
#include <Box2D/Common/b2Settings.h>
#undef b2Assert
#define b2Assert(condition) ((condition) ? (void)0 : __builtin_trap())

#include <Box2D/Box2D.h>

#include <Box2D/Collision/Shapes/b2ChainShape.cpp>
#include <Box2D/Collision/Shapes/b2CircleShape.cpp>
#include <Box2D/Collision/Shapes/b2EdgeShape.cpp>
#include <Box2D/Collision/Shapes/b2PolygonShape.cpp>
#include <Box2D/Collision/b2BroadPhase.cpp>
#include <Box2D/Collision/b2CollideCircle.cpp>
#include <Box2D/Collision/b2CollideEdge.cpp>
#include <Box2D/Collision/b2CollidePolygon.cpp>
#include <Box2D/Collision/b2Collision.cpp>
#include <Box2D/Collision/b2Distance.cpp>
#include <Box2D/Collision/b2DynamicTree.cpp>
#include <Box2D/Collision/b2TimeOfImpact.cpp>
#include <Box2D/Common/b2BlockAllocator.cpp>
#include <Box2D/Common/b2Draw.cpp>
#include <Box2D/Common/b2Math.cpp>
#include <Box2D/Common/b2StackAllocator.cpp>
#include <Box2D/Dynamics/Contacts/b2ChainAndCircleContact.cpp>
#include <Box2D/Dynamics/Contacts/b2ChainAndPolygonContact.cpp>
#include <Box2D/Dynamics/Contacts/b2CircleContact.cpp>
#include <Box2D/Dynamics/Contacts/b2Contact.cpp>
#include <Box2D/Dynamics/Contacts/b2ContactSolver.cpp>
#include <Box2D/Dynamics/Contacts/b2EdgeAndCircleContact.cpp>
#include <Box2D/Dynamics/Contacts/b2EdgeAndPolygonContact.cpp>
#include <Box2D/Dynamics/Contacts/b2PolygonAndCircleContact.cpp>
#include <Box2D/Dynamics/Contacts/b2PolygonContact.cpp>
#include <Box2D/Dynamics/Joints/b2DistanceJoint.cpp>
#include <Box2D/Dynamics/Joints/b2FrictionJoint.cpp>
#include <Box2D/Dynamics/Joints/b2GearJoint.cpp>
#include <Box2D/Dynamics/Joints/b2Joint.cpp>
#include <Box2D/Dynamics/Joints/b2MotorJoint.cpp>
#include <Box2D/Dynamics/Joints/b2MouseJoint.cpp>
#include <Box2D/Dynamics/Joints/b2PrismaticJoint.cpp>
#include <Box2D/Dynamics/Joints/b2PulleyJoint.cpp>
#include <Box2D/Dynamics/Joints/b2RevoluteJoint.cpp>
#include <Box2D/Dynamics/Joints/b2RopeJoint.cpp>
#include <Box2D/Dynamics/Joints/b2WeldJoint.cpp>
#include <Box2D/Dynamics/Joints/b2WheelJoint.cpp>
#include <Box2D/Dynamics/b2Body.cpp>
#include <Box2D/Dynamics/b2ContactManager.cpp>
#include <Box2D/Dynamics/b2Fixture.cpp>
#include <Box2D/Dynamics/b2Island.cpp>
#include <Box2D/Dynamics/b2World.cpp>
#include <Box2D/Dynamics/b2WorldCallbacks.cpp>

// In place of b2Settings.cpp and b2Timer.cpp: a guest neither prints nor takes the time.
void *b2Alloc(int32 size) { return malloc((size_t)size); }
void b2Free(void *memory) { free(memory); }
void b2Log(const char *, ...) {}
b2Timer::b2Timer() {}
void b2Timer::Reset() {}
float32 b2Timer::GetMilliseconds() const { return 0.0f; }

#ifdef __wasm__
extern "C" void __cxa_pure_virtual() { __builtin_trap(); } // that of libc++abi would print
#endif

#include "gymnasium/numbers.h"

// A world takes a quarter of a megabyte: 1,024 fit into the memory that a host gives by default, of
// the hardcore walker 768.
#define GAME_MOST_COPIES 1024

// A polygon, an edge or a box with what a game sets of its fixture.
inline b2PolygonShape polygon(const double (*corners)[2], int count) {
    b2Vec2 vertices[b2_maxPolygonVertices];
    for (int i = 0; i < count; i++) {
        vertices[i].Set((float)corners[i][0], (float)corners[i][1]);
    }
    b2PolygonShape shape;
    shape.Set(vertices, count);
    return shape;
}

inline b2PolygonShape box(double half_width, double half_height) {
    b2PolygonShape shape;
    shape.SetAsBox((float)half_width, (float)half_height);
    return shape;
}

inline b2EdgeShape edge(double x1, double y1, double x2, double y2) {
    b2EdgeShape shape;
    shape.Set(b2Vec2((float)x1, (float)y1), b2Vec2((float)x2, (float)y2));
    return shape;
}

inline b2FixtureDef fixture(const b2Shape &shape, float density, float friction) {
    b2FixtureDef definition;
    definition.shape = &shape;
    definition.density = density;
    definition.friction = friction;
    return definition;
}

// A moving body that collides with the ground only.
inline b2Body *moving(b2World *world, double x, double y, double angle, b2FixtureDef definition,
                      uint16 category) {
    b2BodyDef body;
    body.type = b2_dynamicBody;
    body.position.Set((float)x, (float)y);
    body.angle = (float)angle;
    definition.filter.categoryBits = category;
    definition.filter.maskBits = 0x0001;
    b2Body *made = world->CreateBody(&body);
    made->CreateFixture(&definition);
    return made;
}

// What games in a world have in common: the world, which each episode makes anew, a body that must
// not touch anything, two feet that do, and the rewards of a shaping.
class WorldGame : b2ContactListener {
  public:
    float reward = 0.0f;
    bool terminated = false;

    ~WorldGame() { delete world_; }

    void seed(uint32_t seed) { random_ = NumpyRandom(seed); }

  protected:
    NumpyRandom random_;
    b2World *world_ = nullptr;
    b2Body *hull_ = nullptr, *feet_[2] = {nullptr, nullptr};
    bool has_crashed_ = false, touches_[2] = {false, false};

    void renew_world() {
        delete world_;
        world_ = new b2World(b2Vec2(0.0f, -10.0f));
        world_->SetContactListener(this);
        has_crashed_ = has_shaping_ = touches_[0] = touches_[1] = false;
    }

    // What a shaping has gained since the step before.
    double gained(double shaping) {
        double gain = has_shaping_ ? shaping - shaping_ : 0.0;
        shaping_ = shaping;
        has_shaping_ = true;
        return gain;
    }

  private:
    bool has_shaping_ = false;
    double shaping_ = 0.0;

    void note(b2Contact *contact, bool begins) {
        const b2Body *one = contact->GetFixtureA()->GetBody();
        const b2Body *other = contact->GetFixtureB()->GetBody();
        has_crashed_ = has_crashed_ || (begins && (one == hull_ || other == hull_));
        for (int i = 0; i < 2; i++) {
            if (one == feet_[i] || other == feet_[i]) {
                touches_[i] = begins;
            }
        }
    }

    void BeginContact(b2Contact *contact) override { note(contact, true); }
    void EndContact(b2Contact *contact) override { note(contact, false); }
};
