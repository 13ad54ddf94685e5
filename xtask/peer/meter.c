// rte_meter, colour-blind: bursts of 32 packets on random meters, the meters' lines prefetched.

#include <stdio.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_meter.h>
#include <rte_prefetch.h>

#include "peer.h"
#include "random.h"

enum { DRAWN = 1 << 20, BULK = 32, CIR = 1000000, PIR = 1500000, EIR = 500000, BURST = 4000 };

static uint32_t numbers[DRAWN], lengths[DRAWN];

// Times one kind of meter: `m` is an array of them, `check` colours a packet of length `bytes`.
#define TIMED(m, check) \
	do { \
		for (int warm = 1; warm >= 0; warm--) { \
			uint64_t cycles = cycles_of(warm ? ask->seconds / 10 : ask->seconds); \
			uint64_t done = 0, start = rte_rdtsc_precise(), now; \
			do { \
				for (int burst = 0; burst < 256; burst++, done += BULK) { \
					const uint32_t *number = numbers + done % DRAWN; \
					const uint32_t *length = lengths + done % DRAWN; \
					enum rte_color colors[BULK]; \
					time += apart; \
					for (int i = 0; i < BULK; i++) \
						rte_prefetch0(&(m)[number[i]]); \
					for (int i = 0; i < BULK; i++) { \
						uint32_t at = number[i], bytes = length[i]; \
						colors[i] = check; \
					} \
					__asm__ volatile("" : : "r"(colors) : "memory"); \
				} \
				now = rte_rdtsc_precise(); \
			} while (now - start < cycles); \
			answer->value = ns_per(now - start, done); \
		} \
		answer->memory = (m); \
	} while (0)

int meter_row(const struct ask *ask, struct answer *answer)
{
	uint32_t count = strstr(ask->row, ".1m") != NULL ? 1 << 20 : 4096;
	for (uint64_t i = 0; i < DRAWN; i++) {
		numbers[i] = mixed(i) % count;
		lengths[i] = 64 + mixed(~i) % 1473;
	}
	uint64_t hz = rte_get_tsc_hz(), time = rte_rdtsc();
	// 32 packets of 800 bytes at twice the committed rate of all meters.
	uint64_t apart = (uint64_t)((double)BULK * 800 * hz / (2.0 * CIR * count));
	if (strncmp(ask->row, "meter.srtcm", 11) == 0) {
		struct rte_meter_srtcm_params params = { .cir = CIR, .cbs = BURST, .ebs = BURST };
		struct rte_meter_srtcm_profile p;
		struct rte_meter_srtcm *m = rte_zmalloc("meters", count * sizeof(*m), 64);
		if (m == NULL || rte_meter_srtcm_profile_config(&p, &params) != 0)
			return -1;
		for (uint32_t i = 0; i < count; i++)
			rte_meter_srtcm_config(&m[i], &p);
		TIMED(m, rte_meter_srtcm_color_blind_check(&m[at], &p, time, bytes));
		answer->what = "rte_meter_srtcm";
	} else if (strncmp(ask->row, "meter.trtcm", 11) == 0) {
		struct rte_meter_trtcm_params params = { .cir = CIR, .pir = PIR, .cbs = BURST, .pbs = BURST };
		struct rte_meter_trtcm_profile p;
		struct rte_meter_trtcm *m = rte_zmalloc("meters", count * sizeof(*m), 64);
		if (m == NULL || rte_meter_trtcm_profile_config(&p, &params) != 0)
			return -1;
		for (uint32_t i = 0; i < count; i++)
			rte_meter_trtcm_config(&m[i], &p);
		TIMED(m, rte_meter_trtcm_color_blind_check(&m[at], &p, time, bytes));
		answer->what = "rte_meter_trtcm";
	} else {
		struct rte_meter_trtcm_rfc4115_params params = { .cir = CIR, .eir = EIR, .cbs = BURST, .ebs = BURST };
		struct rte_meter_trtcm_rfc4115_profile p;
		struct rte_meter_trtcm_rfc4115 *m = rte_zmalloc("meters", count * sizeof(*m), 64);
		if (m == NULL || rte_meter_trtcm_rfc4115_profile_config(&p, &params) != 0)
			return -1;
		for (uint32_t i = 0; i < count; i++)
			rte_meter_trtcm_rfc4115_config(&m[i], &p);
		TIMED(m, rte_meter_trtcm_rfc4115_color_blind_check(&m[at], &p, time, bytes));
		answer->what = "rte_meter_trtcm_rfc4115";
	}
	return answer->value > 0 ? 0 : -1;
}
