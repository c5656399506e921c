#define GAME_NAME "mountain_car_continuous_no_velocity"
#define GAME_HIDDEN(number) ((number) == 1)
#include "mountain_car_continuous.cpp"
