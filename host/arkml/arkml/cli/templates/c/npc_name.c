/* An NPC that learns to run to its target and to stay there. */
#include "arkml_guest.h"

SPEC("spec.json");

enum { DISTANCE, SPEED }; /* of an agent's body */

static void place(Agent *agent) {
    agent->body[DISTANCE] = random_number(agent);
}

/* The observation: where the target is, and how fast the NPC runs there. */
static void observe(const Agent *agent, float *features) {
    features[0] = (float)agent->body[DISTANCE];
    features[1] = (float)agent->body[SPEED];
}

/* The action: how fast to run, and where, from -1 to 1. The reward: minus the distance. */
static bool move(Agent *agent, const float *actions) {
    agent->body[SPEED] += 0.3 * (within(actions[0]) - agent->body[SPEED]);
    agent->body[DISTANCE] -= 0.1 * agent->body[SPEED];
    agent->reward = (float)-__builtin_fabs(agent->body[DISTANCE]);
    return false; /* true ends the episode */
}

static const Game GAME = {
    .name = {TEXT("npc_name")},
    .features = 2,
    .actions = 1,
    .agents = 16,
    .episode = 50, /* steps */
    .place = place,
    .observe = observe,
    .move = move,
};
