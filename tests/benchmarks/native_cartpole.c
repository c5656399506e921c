/*
 * The cart-poles of fixtures/guests/c/cartpole.c without a host: a loop over arrays of the caller,
 * the floor of what stepping them costs.
 */
#define __builtin_wasm_memory_size(index) 0
#define __builtin_wasm_memory_grow(index, pages) 0
#include "../../fixtures/guests/c/cartpole.c"

/* Make `count` agents, at most MAX_AGENTS. */
void native_reset(uint32_t count, uint32_t wanted_seed) { configure(count, wanted_seed); }

/* Step all agents; one that has ended begins anew, as in the guest. Rows are [count, 4]. */
void native_step(const float *actions, float *observations, float *rewards, bool *terminations,
                 bool *truncations) {
    for (uint32_t i = 0; i < agent_count; i++) {
        Agent *agent = &agents[i];
        if (is_over(agent)) {
            episode_count++;
            spawn(agent);
        } else {
            step(agent, actions + i);
        }
        observe(agent, observations + 4 * i);
        rewards[i] = agent->reward;
        terminations[i] = agent->state == ARK_EPISODE_STATE_TERMINAL;
        truncations[i] = agent->state == ARK_EPISODE_STATE_INTERRUPTED;
    }
}
