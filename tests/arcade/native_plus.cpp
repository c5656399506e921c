// A game of Gymnasium or RLtools for this machine: SOURCE is the guest's file, without its adapter.
#include SOURCE

extern "C" {
Game *native_game(uint32_t seed) {
    Game *game = new Game;
    game->seed(seed);
    return game;
}

void native_free(Game *game) { delete game; }

// Start an episode, or take a step if there is an action. Returns whether the episode ended.
bool native_step(Game *game, const float *action, float *features, float *reward) {
    if (action == nullptr) {
        game->reset();
    } else {
        game->step(action);
    }
    memcpy(features, game->features, sizeof game->features);
    *reward = action == nullptr ? 0.0f : game->reward;
    return action != nullptr && game->terminated;
}
}
