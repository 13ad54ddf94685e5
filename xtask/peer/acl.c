// rte_acl: rules laid out as in DPDK's test-acl and l3fwd (protocol, addresses, both port ranges in one
// group of four bytes), every algorithm of 256 and 512 bits, 64 packets a call, the fastest one answers.
//
// The file (little endian): u32 rules, u32 packets; per rule u32 src, dst, u16 src port low and high, dst
// port low and high, u8 src bits, dst bits, protocol, protocol mask, u32 priority (the largest wins), u32
// value; per packet u32 src, dst, u16 src port, dst port, u8 protocol, 3 bytes of 0.

#include <stdio.h>
#include <string.h>

#include <rte_acl.h>
#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_malloc.h>

#include "peer.h"

enum { BURST = 64 };

struct file_rule {
	uint32_t src, dst;
	uint16_t src_low, src_high, dst_low, dst_high;
	uint8_t src_bits, dst_bits, protocol, protocol_mask;
	uint32_t priority, value;
};

struct file_packet {
	uint32_t src, dst;
	uint16_t src_port, dst_port;
	uint8_t protocol, zero[3];
};

// What is looked at, in network order.
struct packet {
	uint8_t protocol, zero[3];
	uint32_t src, dst;
	uint16_t src_port, dst_port;
};

enum { PROTOCOL, SRC, DST, SRC_PORT, DST_PORT, FIELDS };

static const struct rte_acl_field_def defs[FIELDS] = {
	{ RTE_ACL_FIELD_TYPE_BITMASK, 1, PROTOCOL, 0, offsetof(struct packet, protocol) },
	{ RTE_ACL_FIELD_TYPE_MASK, 4, SRC, 1, offsetof(struct packet, src) },
	{ RTE_ACL_FIELD_TYPE_MASK, 4, DST, 2, offsetof(struct packet, dst) },
	{ RTE_ACL_FIELD_TYPE_RANGE, 2, SRC_PORT, 3, offsetof(struct packet, src_port) },
	{ RTE_ACL_FIELD_TYPE_RANGE, 2, DST_PORT, 3, offsetof(struct packet, dst_port) },
};

RTE_ACL_RULE_DEF(rule, FIELDS);

static struct packet *packets;
static const uint8_t **pointers;
static uint32_t rules_count, packets_count;
static struct rte_acl_ctx *acl;
static struct rte_acl_config config;

static struct rule to_rule(const struct file_rule *from)
{
	struct rule rule = { 0 };
	rule.data.userdata = from->value;
	rule.data.category_mask = 1;
	rule.data.priority = (int32_t)from->priority;
	rule.field[PROTOCOL].value.u8 = from->protocol;
	rule.field[PROTOCOL].mask_range.u8 = from->protocol_mask;
	rule.field[SRC].value.u32 = from->src;
	rule.field[SRC].mask_range.u32 = from->src_bits;
	rule.field[DST].value.u32 = from->dst;
	rule.field[DST].mask_range.u32 = from->dst_bits;
	rule.field[SRC_PORT].value.u16 = from->src_low;
	rule.field[SRC_PORT].mask_range.u16 = from->src_high;
	rule.field[DST_PORT].value.u16 = from->dst_low;
	rule.field[DST_PORT].mask_range.u16 = from->dst_high;
	return rule;
}

static int load(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL || fread(&rules_count, 4, 1, file) != 1 ||
			fread(&packets_count, 4, 1, file) != 1 || rules_count == 0 || packets_count < BURST) {
		fprintf(stderr, "peer: cannot read %s\n", path);
		return -1;
	}
	struct rte_acl_param param = { .name = "acl", .socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(FIELDS), .max_rule_num = rules_count + 4096 };
	acl = rte_acl_create(&param);
	packets = rte_malloc(NULL, packets_count * sizeof(*packets), 64);
	pointers = rte_malloc(NULL, packets_count * sizeof(*pointers), 64);
	if (acl == NULL || packets == NULL || pointers == NULL)
		return -1;
	for (uint32_t i = 0; i < rules_count; i++) {
		struct file_rule from;
		if (fread(&from, sizeof(from), 1, file) != 1)
			return -1;
		struct rule rule = to_rule(&from);
		if (rte_acl_add_rules(acl, (struct rte_acl_rule *)&rule, 1) != 0)
			return -1;
	}
	for (uint32_t i = 0; i < packets_count; i++) {
		struct file_packet from;
		if (fread(&from, sizeof(from), 1, file) != 1)
			return -1;
		packets[i] = (struct packet){ .protocol = from.protocol,
			.src = rte_cpu_to_be_32(from.src), .dst = rte_cpu_to_be_32(from.dst),
			.src_port = rte_cpu_to_be_16(from.src_port), .dst_port = rte_cpu_to_be_16(from.dst_port) };
		pointers[i] = (const uint8_t *)&packets[i];
	}
	fclose(file);
	config.num_categories = 1;
	config.num_fields = FIELDS;
	memcpy(config.defs, defs, sizeof(defs));
	return 0;
}

// ns per packet, and the sum of all answers for one pass over the packets.
static double classify(enum rte_acl_classify_alg alg, uint64_t cycles, uint64_t *sum)
{
	uint32_t results[BURST];
	uint64_t passed = 0, start, now;
	uint32_t whole = packets_count / BURST * BURST, at = 0;
	*sum = 0;
	for (uint32_t i = 0; i < whole; i += BURST) {
		if (rte_acl_classify_alg(acl, pointers + i, results, BURST, 1, alg) != 0)
			return -1;
		for (int j = 0; j < BURST; j++)
			*sum += results[j];
	}
	start = rte_rdtsc_precise();
	do {
		for (int turn = 0; turn < 64; turn++) {
			rte_acl_classify_alg(acl, pointers + at, results, BURST, 1, alg);
			__asm__ volatile("" : : "r"(results) : "memory");
			at = at + BURST == whole ? 0 : at + BURST;
		}
		passed += 64 * BURST;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, passed);
}

static int classify_row(const struct ask *ask, struct answer *answer)
{
	static const struct { enum rte_acl_classify_alg alg; const char *name; } algs[] = {
		{ RTE_ACL_CLASSIFY_AVX512X32, "avx512x32" },
		{ RTE_ACL_CLASSIFY_AVX512X16, "avx512x16" },
		{ RTE_ACL_CLASSIFY_AVX2, "avx2" },
	};
	uint64_t sum = 0;
	char *detail = answer->detail;
	size_t room = sizeof(answer->detail);
	answer->value = -1;
	for (unsigned i = 0; i < RTE_DIM(algs); i++) {
		if (rte_acl_set_ctx_classify(acl, algs[i].alg) != 0)
			continue; // this CPU has it not
		uint64_t each;
		classify(algs[i].alg, cycles_of(ask->seconds / 10), &each);
		double ns = classify(algs[i].alg, cycles_of(ask->seconds), &each);
		if (ns > 0 && (answer->value < 0 || ns < answer->value)) {
			answer->value = ns;
			answer->what = algs[i].name;
			sum = each;
		}
		int written = snprintf(detail, room, "\"%s\":%.2f,", algs[i].name, ns);
		detail += written;
		room -= written;
	}
	snprintf(detail, room, "\"rules\":%u,\"sum\":%llu", rules_count, (unsigned long long)sum);
	return answer->value > 0 ? 0 : -1;
}

// One more rule and the build that it takes to be looked at; three times.
static int update_row(struct answer *answer)
{
	struct file_rule from = { .src = 0xcb007100, .src_bits = 24,
		.dst = 0xc6336400, .dst_bits = 32, .src_high = 65535, .dst_high = 65535,
		.protocol = 6, .protocol_mask = 0xff, .priority = 1, .value = 77 };
	uint64_t cycles = 0;
	int turns = 3;
	for (int turn = 0; turn < turns; turn++) {
		from.dst++;
		struct rule rule = to_rule(&from);
		uint64_t start = rte_rdtsc_precise();
		if (rte_acl_add_rules(acl, (struct rte_acl_rule *)&rule, 1) != 0 || rte_acl_build(acl, &config) != 0)
			return -1;
		cycles += rte_rdtsc_precise() - start;
	}
	answer->value = ns_per(cycles, turns);
	answer->what = "rte_acl_add_rules+build";
	snprintf(answer->detail, sizeof(answer->detail), "\"rules\":%u", rules_count);
	return 0;
}

int acl_row(const struct ask *ask, struct answer *answer)
{
	if (load(ask->input) != 0)
		return -1;
	if (rte_acl_build(acl, &config) != 0) {
		fprintf(stderr, "peer: rte_acl_build failed\n");
		return -1;
	}
	answer->memory = packets;
	if (strncmp(ask->row, "acl.classify.", 13) == 0)
		return classify_row(ask, answer);
	if (strcmp(ask->row, "acl.update.10k") == 0)
		return update_row(answer);
	fprintf(stderr, "peer: no row %s\n", ask->row);
	return -1;
}
