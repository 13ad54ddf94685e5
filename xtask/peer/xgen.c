// The two ends of the veth rows, in the kernel, the same for both sides of the comparison:
//
//   xgen feed IFACE BYTES CPU [FLOWS [answers]]
//                               sends XDP frames of BYTES out of IFACE until it is ended, each of one of 2 to the
//                               power of FLOWS flows, drawn anew; or answers of the first 4096 of them
//   xgen drop IFACE             drops whatever arrives at IFACE before a socket buffer is made
//
// The feeder is a BPF test run with live frames (Linux 5.18) whose program redirects each frame to IFACE. The
// kernel uses the same pages over and over, and whoever forwards a frame has changed it by then: so the program
// also writes its headers anew.
// the dropper is an XDP program that goes away with this process. Raw bpf(2), no library.

#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/bpf.h>
#include <linux/if_link.h>

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int fail(const char *what)
{
	fprintf(stderr, "xgen: %s: %s\n", what, strerror(errno));
	return 1;
}

static int load(const struct bpf_insn *program, unsigned count)
{
	static char log[4096];
	union bpf_attr attr = { 0 };
	attr.prog_type = BPF_PROG_TYPE_XDP;
	attr.insns = (uint64_t)(uintptr_t)program;
	attr.insn_cnt = count;
	attr.license = (uint64_t)(uintptr_t)"Dual MIT/GPL";
	attr.log_buf = (uint64_t)(uintptr_t)log;
	attr.log_size = sizeof(log);
	attr.log_level = 1;
	int fd = bpf(BPF_PROG_LOAD, &attr);
	if (fd < 0)
		fprintf(stderr, "%s", log);
	return fd;
}

// An IPv4 UDP frame without a checksum of UDP, 198.18.0.1:1000 to 198.18.0.2:2000 (RFC 2544's addresses); or an
// answer to who stands behind 10.255.1.1.
static void write_frame(uint8_t *frame, unsigned bytes, int answers)
{
	unsigned ip = bytes - 14, udp = ip - 20, sum = 0;
	const uint8_t head[] = {
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
		0x45, 0, ip >> 8, ip, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
		1000 >> 8, 1000 & 255, 2000 >> 8, 2000 & 255, udp >> 8, udp, 0, 0,
	};
	const uint8_t back[] = { 198, 18, 0, 2, 10, 255, 1, 1, 2000 >> 8, 2000 & 255, 1000 >> 8, 1000 & 255 };
	memset(frame, 0, bytes);
	memcpy(frame, head, sizeof(head));
	if (answers) {
		frame[5] = 3;
		frame[11] = 4;
		memcpy(frame + 26, back, sizeof(back));
	}
	for (int i = 14; i < 34; i += 2)
		sum += frame[i] << 8 | frame[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	frame[24] = sum >> 8;
	frame[25] = sum;
}

// Ethernet, IPv4 and UDP headers, in words of 4 bytes (up to the length of UDP).
enum { HEADERS = 40, SOURCE_PORT = 34, DESTINATION_PORT = 36 };

// The ports of flow R7, which is below 2 to the power of FLOWS: the first 12 bits make the port of who began it, the
// others the other one.
static struct bpf_insn *write_ports(struct bpf_insn *next, unsigned flows, int answers)
{
	const short inside = answers ? DESTINATION_PORT : SOURCE_PORT;
	const struct bpf_insn ports[] = {
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_prandom_u32 },
		{ .code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = 0, .imm = (int)((1u << flows) - 1) },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 7, .src_reg = 0 },
		{ .code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = 0, .imm = 4095 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 0, .imm = 4096 },
		{ .code = BPF_ALU | BPF_END | BPF_TO_BE, .dst_reg = 0, .imm = 16 },
		{ .code = BPF_STX | BPF_MEM | BPF_H, .dst_reg = 6, .src_reg = 0, .off = inside },
	};
	const struct bpf_insn other[] = {
		{ .code = BPF_ALU64 | BPF_RSH | BPF_K, .dst_reg = 7, .imm = 11 },
		{ .code = BPF_ALU64 | BPF_OR | BPF_K, .dst_reg = 7, .imm = 1 },
		{ .code = BPF_ALU | BPF_END | BPF_TO_BE, .dst_reg = 7, .imm = 16 },
		{ .code = BPF_STX | BPF_MEM | BPF_H, .dst_reg = 6, .src_reg = 7, .off = DESTINATION_PORT },
	};

	for (size_t i = 0; i < sizeof(ports) / sizeof(*ports); i++)
		*next++ = ports[i];
	for (size_t i = 0; flows > 12 && i < sizeof(other) / sizeof(*other); i++)
		*next++ = other[i];
	return next;
}

// Writes the headers of `frame` into each frame, with the ports of one of 2 to the power of FLOWS flows if that is not 0,
// and redirects it to the interface.
static int load_feeder(unsigned ifindex, const uint8_t *frame, unsigned flows, int answers)
{
	struct bpf_insn program[HEADERS / 4 + 32];
	const struct bpf_insn begin[] = {
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = offsetof(struct xdp_md, data) },
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 3, .src_reg = 1, .off = offsetof(struct xdp_md, data_end) },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 4, .src_reg = 2 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 4, .imm = HEADERS },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 6, .src_reg = 2 },
		// The verifier wants to see that there is room; there always is. Where to is filled in below.
		{ .code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = 4, .src_reg = 3 },
	};
	const struct bpf_insn end[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 1, .imm = (int)ifindex },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .imm = 0 },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	struct bpf_insn *next = program;

	for (size_t i = 0; i < sizeof(begin) / sizeof(*begin); i++)
		*next++ = begin[i];
	struct bpf_insn *no_room = next - 1;
	for (short at = 0; at < HEADERS; at += 4) {
		int word;
		memcpy(&word, frame + at, sizeof(word));
		*next++ = (struct bpf_insn){ .code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = 2, .off = at, .imm = word };
	}
	if (flows != 0)
		next = write_ports(next, flows, answers);
	no_room->off = (short)(next - no_room - 1);
	for (size_t i = 0; i < sizeof(end) / sizeof(*end); i++)
		*next++ = end[i];
	return load(program, (unsigned)(next - program));
}

static int feed(unsigned ifindex, unsigned bytes, unsigned flows, int answers)
{
	static uint8_t frame[2048];
	struct xdp_md context = { .data_end = bytes };
	union bpf_attr attr;
	int program;

	write_frame(frame, bytes, answers);
	program = load_feeder(ifindex, frame, flows, answers);
	if (program < 0)
		return fail("the feeding program is refused");
	printf("feeding\n");
	fflush(stdout);
	for (;;) {
		memset(&attr, 0, sizeof(attr));
		attr.test.prog_fd = (uint32_t)program;
		attr.test.data_in = (uint64_t)(uintptr_t)frame;
		attr.test.data_size_in = bytes;
		attr.test.ctx_in = (uint64_t)(uintptr_t)&context;
		attr.test.ctx_size_in = sizeof(context);
		attr.test.repeat = 1 << 30;
		attr.test.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
		attr.test.batch_size = 64;
		if (bpf(BPF_PROG_TEST_RUN, &attr) != 0 && errno != EINTR)
			return fail("a test run with live frames");
	}
}

static int drop(unsigned ifindex)
{
	const struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = XDP_DROP },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = { 0 };
	int fd = load(program, sizeof(program) / sizeof(*program));

	if (fd < 0)
		return fail("the dropping program is refused");
	attr.link_create.prog_fd = (uint32_t)fd;
	attr.link_create.target_ifindex = ifindex;
	attr.link_create.attach_type = BPF_XDP;
	attr.link_create.flags = XDP_FLAGS_DRV_MODE;
	if (bpf(BPF_LINK_CREATE, &attr) < 0)
		return fail("the dropping program does not attach");
	printf("dropping\n");
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	unsigned ifindex = argc > 2 ? if_nametoindex(argv[2]) : 0;
	if (argc > 2 && ifindex == 0)
		return fail(argv[2]);
	if (argc >= 5 && argc <= 7 && strcmp(argv[1], "feed") == 0) {
		unsigned bytes = (unsigned)atoi(argv[3]), flows = argc > 5 ? (unsigned)atoi(argv[5]) : 0;
		cpu_set_t cpus;
		CPU_ZERO(&cpus);
		CPU_SET((unsigned)atoi(argv[4]), &cpus);
		if (bytes < 60 || bytes > 1514) {
			fprintf(stderr, "xgen: BYTES is 60 to 1514\n");
			return 2;
		}
		if (flows > 27 || (argc == 7 && strcmp(argv[6], "answers") != 0)) {
			fprintf(stderr, "xgen: FLOWS is 0 to 27\n");
			return 2;
		}
		if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
			return fail("pinning to the CPU");
		return feed(ifindex, bytes, flows, argc == 7);
	}
	if (argc == 3 && strcmp(argv[1], "drop") == 0)
		return drop(ifindex);
	fprintf(stderr, "usage: xgen feed IFACE BYTES CPU [FLOWS [answers]] | xgen drop IFACE\n");
	return 2;
}
