#define GAME_NAME "lunar_lander_continuous"
#define CONTINUOUS
#include "lunar_lander.cpp"
