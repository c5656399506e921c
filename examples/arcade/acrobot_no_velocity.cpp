#define GAME_NAME "acrobot_no_velocity"
#define GAME_HIDDEN(number) ((number) >= 4)
#include "acrobot.cpp"
