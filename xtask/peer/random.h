#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

// Numbers that look random: the finaliser of splitmix64, as in bench/random.rs.
static inline uint64_t mixed(uint64_t number)
{
	uint64_t z = number + 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

#endif
