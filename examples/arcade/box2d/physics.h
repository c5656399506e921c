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
// In place of those of libc++abi, which would print.
extern "C" void __cxa_pure_virtual() { __builtin_trap(); }

void *operator new(size_t size) {
    void *memory = malloc(size);
    return memory != nullptr ? memory : (__builtin_trap(), memory);
}
void *operator new[](size_t size) { return operator new(size); }
void operator delete(void *memory) noexcept { free(memory); }
void operator delete[](void *memory) noexcept { free(memory); }
void operator delete(void *memory, size_t) noexcept { free(memory); }
void operator delete[](void *memory, size_t) noexcept { free(memory); }
#endif

// The numbers of numpy.random.default_rng(seed): a SeedSequence of 32 bits and its PCG64.
class NumpyRandom {
  public:
    explicit NumpyRandom(uint32_t seed = 0) {
        uint32_t pool[4], hash = 0x43b0d7e5;
        for (int i = 0; i < 4; i++) {
            pool[i] = hashed(i == 0 ? seed : 0, hash, 0x931e8875);
        }
        for (int from = 0; from < 4; from++) {
            for (int to = 0; to < 4; to++) {
                if (from != to) {
                    uint32_t mixed = 0xca01f9dd * pool[to] -
                                     0x4973f715 * hashed(pool[from], hash, 0x931e8875);
                    pool[to] = mixed ^ mixed >> 16;
                }
            }
        }
        uint64_t words[4] = {0};
        hash = 0x8b51f9dd;
        for (int i = 0; i < 8; i++) {
            words[i / 2] |= (uint64_t)hashed(pool[i % 4], hash, 0x58f38ded) << 32 * (i % 2);
        }
        increment_ = whole(words[2], words[3]) << 1 | 1;
        state_ = 0;
        step();
        state_ += whole(words[0], words[1]);
        step();
    }

    double random() { return (double)(next64() >> 11) * (1.0 / 9007199254740992.0); }

    double uniform(double low, double high) { return low + (high - low) * random(); }

    // A whole number from `low` to below `high`; nothing is drawn if there is but one.
    int integers(int low, int high) {
        uint32_t count = (uint32_t)(high - low);
        if (count == 1) {
            return low;
        }
        uint64_t product = (uint64_t)next32() * count;
        while ((uint32_t)product < (uint32_t)-count % count) {
            product = (uint64_t)next32() * count;
        }
        return low + (int)(product >> 32);
    }

  private:
    typedef unsigned __int128 Whole;

    Whole state_, increment_;
    uint32_t half_ = 0; // the upper half of a number whose lower one was taken
    bool has_half_ = false;

    static Whole whole(uint64_t high, uint64_t low) { return (Whole)high << 64 | low; }

    static uint32_t hashed(uint32_t value, uint32_t &hash, uint32_t factor) {
        value ^= hash;
        hash *= factor;
        value *= hash;
        return value ^ value >> 16;
    }

    void step() {
        const Whole FACTOR = whole(UINT64_C(2549297995355413924), UINT64_C(4865540595714422341));
        state_ = state_ * FACTOR + increment_;
    }

    uint64_t next64() {
        step();
        uint64_t folded = (uint64_t)(state_ >> 64) ^ (uint64_t)state_;
        unsigned turn = (unsigned)(state_ >> 122);
        return folded >> turn | folded << (-turn & 63);
    }

    uint32_t next32() {
        if (has_half_) {
            has_half_ = false;
            return half_;
        }
        uint64_t both = next64();
        has_half_ = true;
        half_ = (uint32_t)(both >> 32);
        return (uint32_t)both;
    }
};

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

// A number of an action in [-1, 1].
inline float within(float number) {
    return number > -1.0f ? (number < 1.0f ? number : 1.0f) : -1.0f;
}
