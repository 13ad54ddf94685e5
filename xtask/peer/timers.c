// rte_timer: one lcore's skip list, which takes its time from the TSC.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_timer.h>

#include "peer.h"
#include "random.h"

enum { DRAWN = 1 << 20 };

static uint64_t fired;

static void on_timer(struct rte_timer *timer, void *arg)
{
	(void)timer;
	(void)arg;
	fired++;
}

// A random pending timer of `count` to another time within a minute.
static double rearm(struct rte_timer *timers, uint64_t count, double seconds)
{
	uint64_t minute = 60 * rte_get_timer_hz();
	unsigned lcore = rte_lcore_id();
	uint32_t *which = malloc(DRAWN * sizeof(*which));
	uint64_t *delay = malloc(DRAWN * sizeof(*delay));
	if (which == NULL || delay == NULL)
		return -1;
	for (uint64_t i = 0; i < DRAWN; i++) {
		which[i] = mixed(i << 1) % count;
		delay[i] = 1 + mixed(i << 1 | 1) % minute;
	}
	for (uint64_t i = 0; i < count; i++)
		rte_timer_reset(&timers[i], 1 + mixed(i) % minute, SINGLE, lcore, on_timer, NULL);
	double value = -1;
	uint64_t at = 0;
	for (int warm = 1; warm >= 0; warm--) {
		uint64_t cycles = cycles_of(warm ? seconds / 10 : seconds);
		uint64_t done = 0, start = rte_rdtsc_precise(), now;
		do {
			for (int i = 0; i < 256; i++, at = (at + 1) % DRAWN)
				rte_timer_reset(&timers[which[at]], delay[at], SINGLE, lcore, on_timer, NULL);
			done += 256;
			now = rte_rdtsc_precise();
		} while (now - start < cycles);
		value = ns_per(now - start, done);
	}
	free(which);
	free(delay);
	return value;
}

// All timers to random times, and all of them fired once they are due; waiting is not timed.
static double arm_fire(struct rte_timer *timers, uint64_t count, double seconds)
{
	uint64_t timed = 0, limit = cycles_of(seconds), done = 0;
	uint64_t window = rte_get_timer_hz() / 10;
	unsigned lcore = rte_lcore_id();
	for (int warm = 1; timed < limit; warm = 0) {
		uint64_t start = rte_rdtsc_precise();
		for (uint64_t i = 0; i < count; i++)
			rte_timer_reset(&timers[i], window + mixed(i) % window, SINGLE, lcore, on_timer, NULL);
		uint64_t armed = rte_rdtsc_precise();
		while (rte_get_timer_cycles() < armed + 2 * window)
			;
		fired = 0;
		uint64_t due = rte_rdtsc_precise();
		while (fired < count)
			rte_timer_manage();
		uint64_t end = rte_rdtsc_precise();
		if (!warm) {
			timed += (armed - start) + (end - due);
			done += count;
		}
	}
	return ns_per(timed, done);
}

int timers_row(const struct ask *ask, struct answer *answer)
{
	const char *size = strrchr(ask->row, '.');
	uint64_t count = strcmp(size, ".1m") == 0 ? 1000000 : 100000;
	if (rte_timer_subsystem_init() != 0)
		return -1;
	struct rte_timer *timers = rte_zmalloc("timers", count * sizeof(*timers), 64);
	if (timers == NULL)
		return -1;
	for (uint64_t i = 0; i < count; i++)
		rte_timer_init(&timers[i]);
	if (strncmp(ask->row, "wheel.rearm", 11) == 0)
		answer->value = rearm(timers, count, ask->seconds);
	else
		answer->value = arm_fire(timers, count, ask->seconds);
	answer->what = "rte_timer";
	answer->memory = timers;
	snprintf(answer->detail, sizeof(answer->detail), "\"bytes_each\":%zu", sizeof(*timers));
	return answer->value > 0 ? 0 : -1;
}
