// What the games of Gymnasium share: numpy's random numbers, and the numbers of actions.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __wasm__
// In place of those of the library of C++, which a guest does without.
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

// A number of an action in [-1, 1].
inline float within(float number) {
    return number > -1.0f ? (number < 1.0f ? number : 1.0f) : -1.0f;
}

// The choice from 0 to `last` that a number of an action is.
inline int choice(float number, int last) {
    return number > 0.0f ? (number < (float)last ? (int)number : last) : 0;
}
