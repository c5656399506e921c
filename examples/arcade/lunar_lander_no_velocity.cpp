#define GAME_NAME "lunar_lander_no_velocity"
#define GAME_HIDDEN(number) ((number) == 2 || (number) == 3 || (number) == 5)
#include "lunar_lander.cpp"
