// rte_ring as DPDK's users call it: pointers, bulk (all or nothing), the function of each sync mode
// called directly. A single element is one for the compiler, too; how long a bulk is it does not
// know, as it does not know how many packets a forwarder received. Our side has it the same way.

#include <stdio.h>

#include <rte_launch.h>
#include <rte_pause.h>
#include <rte_ring.h>

#include "peer.h"

enum mode { SPSC, MPMC, RTS, HTS };

static const unsigned flags_of[] = {
	[SPSC] = RING_F_SP_ENQ | RING_F_SC_DEQ,
	[MPMC] = 0,
	[RTS] = RING_F_MP_RTS_ENQ | RING_F_MC_RTS_DEQ,
	[HTS] = RING_F_MP_HTS_ENQ | RING_F_MC_HTS_DEQ,
};

static __rte_always_inline unsigned
enqueue(struct rte_ring *r, enum mode mode, void *const *objects, unsigned n)
{
	switch (mode) {
	case SPSC:
		return rte_ring_sp_enqueue_bulk(r, objects, n, NULL);
	case MPMC:
		return rte_ring_mp_enqueue_bulk(r, objects, n, NULL);
	case RTS:
		return rte_ring_mp_rts_enqueue_bulk(r, objects, n, NULL);
	default:
		return rte_ring_mp_hts_enqueue_bulk(r, objects, n, NULL);
	}
}

static __rte_always_inline unsigned
dequeue(struct rte_ring *r, enum mode mode, void **objects, unsigned n)
{
	switch (mode) {
	case SPSC:
		return rte_ring_sc_dequeue_bulk(r, objects, n, NULL);
	case MPMC:
		return rte_ring_mc_dequeue_bulk(r, objects, n, NULL);
	case RTS:
		return rte_ring_mc_rts_dequeue_bulk(r, objects, n, NULL);
	default:
		return rte_ring_mc_hts_dequeue_bulk(r, objects, n, NULL);
	}
}

// n where the compiler may use what it knows of it: a single element.
static __rte_always_inline unsigned length(unsigned n)
{
	if (n > 1)
		asm("" : "+r"(n));
	return n;
}

// n in, n out, in turns, on this core: cycles for `cycles`, returns ns per element for the pair.
static __rte_always_inline double
in_turns(struct rte_ring *r, enum mode mode, unsigned n, uint64_t cycles)
{
	void *objects[BULK_MAX] = { 0 };
	uint64_t rounds = 0, start = rte_rdtsc_precise(), now;
	n = length(n);
	do {
		for (int i = 0; i < 1024; i++) {
			enqueue(r, mode, objects, n);
			dequeue(r, mode, objects, n);
		}
		rounds += 1024;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, rounds * n);
}

struct run {
	struct rte_ring *ring;
	uint64_t cycles;
	volatile int stop;
};

static __rte_always_inline int
produce(struct run *run, enum mode mode, unsigned n)
{
	void *objects[BULK_MAX] = { 0 };
	n = length(n);
	while (!run->stop)
		while (enqueue(run->ring, mode, objects, n) == 0 && !run->stop)
			rte_pause();
	return 0;
}

// Takes n elements `batches` times.
static __rte_always_inline void
take(struct rte_ring *r, enum mode mode, unsigned n, unsigned batches)
{
	void *objects[BULK_MAX];
	n = length(n);
	for (unsigned i = 0; i < batches; i++)
		while (dequeue(r, mode, objects, n) == 0)
			rte_pause();
}

static __rte_always_inline double
consume(struct run *run, enum mode mode, unsigned n)
{
	uint64_t batches = 0, start, now;
	take(run->ring, mode, n, 65536 / n); // both sides warm
	start = rte_rdtsc_precise();
	do {
		take(run->ring, mode, n, 1024);
		batches += 1024;
		now = rte_rdtsc_precise();
	} while (now - start < run->cycles);
	run->stop = 1;
	return ns_per(now - start, batches * n);
}

// One function per mode and bulk; the mode is constant inside.
#define EACH_BULK(X, mode) X(mode, 1) X(mode, 8) X(mode, 32) X(mode, 256)
#define EACH(X) EACH_BULK(X, SPSC) EACH_BULK(X, MPMC) EACH_BULK(X, RTS) EACH_BULK(X, HTS)

#define PRODUCER(mode, n) \
	static int produce_##mode##_##n(void *run) { return produce(run, mode, n); }
EACH(PRODUCER)

static double one_core(struct rte_ring *r, enum mode mode, unsigned n, uint64_t cycles)
{
#define ONE(m, b) if (mode == m && n == b) return in_turns(r, m, b, cycles);
	EACH(ONE)
	return -1;
}

static double two_cores(struct rte_ring *r, enum mode mode, unsigned n, uint64_t cycles)
{
	struct run run = { r, cycles, 0 };
	unsigned other = rte_get_next_lcore(-1, 1, 0);
	double ns = -1;
#define TWO(m, b) \
	if (mode == m && n == b) { \
		rte_eal_remote_launch(produce_##m##_##b, &run, other); \
		ns = consume(&run, m, b); \
	}
	EACH(TWO)
	rte_eal_wait_lcore(other);
	return ns;
}

typedef double (*timer)(struct rte_ring *, enum mode, unsigned, uint64_t);

static double timed(timer timer, enum mode mode, const struct ask *ask, struct answer *answer)
{
	static const char *const names[] = { "spsc", "mpmc", "rts", "hts" };
	struct rte_ring *r = rte_ring_create(names[mode], RING_SLOTS, rte_socket_id(), flags_of[mode]);
	if (r == NULL)
		return -1;
	answer->memory = r;
	timer(r, mode, ask->bulk, cycles_of(ask->seconds / 10));
	rte_ring_reset(r);
	return timer(r, mode, ask->bulk, cycles_of(ask->seconds));
}

static int compare_modes(timer timer, int mpmc, const struct ask *ask, struct answer *answer)
{
	if (!mpmc) {
		answer->value = timed(timer, SPSC, ask, answer);
		answer->what = "rte_ring SP/SC";
		snprintf(answer->detail, sizeof(answer->detail), "\"slots\":%d", RING_SLOTS);
		return answer->value > 0 ? 0 : -1;
	}
	double plain = timed(timer, MPMC, ask, answer);
	double rts = timed(timer, RTS, ask, answer);
	double hts = timed(timer, HTS, ask, answer);
	answer->value = rts < hts ? rts : hts;
	answer->what = rts < hts ? "rte_ring RTS" : "rte_ring HTS";
	snprintf(answer->detail, sizeof(answer->detail),
		 "\"slots\":%d,\"rts\":%.4f,\"hts\":%.4f,\"mp_mc\":%.4f", RING_SLOTS, rts, hts, plain);
	return plain > 0 && answer->value > 0 ? 0 : -1;
}

int ring_one_core(const struct ask *ask, int mpmc, struct answer *answer)
{
	return compare_modes(one_core, mpmc, ask, answer);
}

int ring_two_cores(const struct ask *ask, int mpmc, struct answer *answer)
{
	if (rte_lcore_count() < 2)
		return -1;
	return compare_modes(two_cores, mpmc, ask, answer);
}

struct echo {
	struct rte_ring *there, *back;
	volatile int stop;
};

static int echo(void *arg)
{
	struct echo *echo = arg;
	void *object;
	while (!echo->stop)
		if (rte_ring_sc_dequeue(echo->there, &object) == 0)
			rte_ring_sp_enqueue(echo->back, object);
	return 0;
}

// How far apart the two cores are now: the mean of one element's way there and back over two SP/SC
// rings, in batches short enough that a descheduled one stands out, of which the median counts.
int ring_round_trip(const struct ask *ask, struct answer *answer)
{
	enum { BATCHES = 21, TRIPS = 1000 };
	double ns[BATCHES];
	struct echo run = {
		rte_ring_create("there", 64, rte_socket_id(), flags_of[SPSC]),
		rte_ring_create("back", 64, rte_socket_id(), flags_of[SPSC]),
		0,
	};
	void *object = NULL;
	(void)ask;

	if (run.there == NULL || run.back == NULL || rte_lcore_count() < 2)
		return -1;
	unsigned other = rte_get_next_lcore(-1, 1, 0);
	rte_eal_remote_launch(echo, &run, other);
	for (int batch = 0; batch < BATCHES; batch++) {
		uint64_t start = rte_rdtsc_precise();
		for (int i = 0; i < TRIPS; i++) {
			rte_ring_sp_enqueue(run.there, object);
			while (rte_ring_sc_dequeue(run.back, &object) != 0)
				;
		}
		ns[batch] = ns_per(rte_rdtsc_precise() - start, TRIPS);
		for (int i = batch; i > 0 && ns[i] < ns[i - 1]; i--) {
			double swap = ns[i];
			ns[i] = ns[i - 1];
			ns[i - 1] = swap;
		}
	}
	run.stop = 1;
	rte_eal_wait_lcore(other);
	answer->value = ns[BATCHES / 2];
	answer->what = "rte_ring SP/SC round trip";
	answer->memory = run.there;
	return 0;
}
