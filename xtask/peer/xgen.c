// The two ends of the veth rows, in the kernel, the same for both sides of the comparison:
//
//   xgen feed IFACE BYTES CPU   sends XDP frames of BYTES out of IFACE until it is ended
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

// An IPv4 UDP frame, 198.18.0.1:1000 to 198.18.0.2:2000 (RFC 2544's addresses).
static void write_frame(uint8_t *frame, unsigned bytes)
{
	unsigned ip = bytes - 14, udp = ip - 20, sum = 0;
	const uint8_t head[] = {
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
		0x45, 0, ip >> 8, ip, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
		1000 >> 8, 1000 & 255, 2000 >> 8, 2000 & 255, udp >> 8, udp, 0, 0,
	};
	memset(frame, 0, bytes);
	memcpy(frame, head, sizeof(head));
	for (int i = 14; i < 34; i += 2)
		sum += frame[i] << 8 | frame[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	frame[24] = sum >> 8;
	frame[25] = sum;
}

// Ethernet and IPv4 headers, in words of 4 bytes (the last one reaches into the UDP header).
enum { HEADERS = 36 };

// Writes the headers of `frame` into each frame and redirects it to the interface.
static int load_feeder(unsigned ifindex, const uint8_t *frame)
{
	struct bpf_insn program[HEADERS / 4 + 12];
	const struct bpf_insn begin[] = {
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = offsetof(struct xdp_md, data) },
		{ .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 3, .src_reg = 1, .off = offsetof(struct xdp_md, data_end) },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 4, .src_reg = 2 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 4, .imm = HEADERS },
		// The verifier wants to see that there is room; there always is.
		{ .code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = 4, .src_reg = 3, .off = HEADERS / 4 },
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
	for (short at = 0; at < HEADERS; at += 4) {
		int word;
		memcpy(&word, frame + at, sizeof(word));
		*next++ = (struct bpf_insn){ .code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = 2, .off = at, .imm = word };
	}
	for (size_t i = 0; i < sizeof(end) / sizeof(*end); i++)
		*next++ = end[i];
	return load(program, (unsigned)(next - program));
}

static int feed(unsigned ifindex, unsigned bytes)
{
	static uint8_t frame[2048];
	struct xdp_md context = { .data_end = bytes };
	union bpf_attr attr;
	int program;

	write_frame(frame, bytes);
	program = load_feeder(ifindex, frame);
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
	if (argc == 5 && strcmp(argv[1], "feed") == 0) {
		unsigned bytes = (unsigned)atoi(argv[3]);
		cpu_set_t cpus;
		CPU_ZERO(&cpus);
		CPU_SET((unsigned)atoi(argv[4]), &cpus);
		if (bytes < 60 || bytes > 1514) {
			fprintf(stderr, "xgen: BYTES is 60 to 1514\n");
			return 2;
		}
		if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
			return fail("pinning to the CPU");
		return feed(ifindex, bytes);
	}
	if (argc == 3 && strcmp(argv[1], "drop") == 0)
		return drop(ifindex);
	fprintf(stderr, "usage: xgen feed IFACE BYTES CPU | xgen drop IFACE\n");
	return 2;
}
