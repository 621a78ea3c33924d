/*
 * config.h - what the simulated machine is made of, read once per process from sim.conf.
 *
 * The file lies beside the library (links resolved), or is named by GAIA_SIM_CONF. Lines are
 * `key = value`, `#` starts a comment, sizes are bytes. Without a file: two cards of 24 GiB.
 *
 *   cards = 2                    up to 16
 *   name, memory, reserved, context, compute (8.9), numa, switch (PCIe), speed: of all cards, or of
 *   card.N.name ... card.N.uuid, card.N.pci (domain:bus, hex): of one
 *   link = A B COUNT             NVLinks between cards A and B
 *   nvswitch = COUNT             NVLinks of every card to a switch that joins all
 *   level = A B single           PCI: internal, single, multiple, hostbridge, node, system
 *   p2p = A B off                on, off
 *   multiprocessors, blocks_per_multiprocessor: of all cards or, as above, of one
 *   kernel_ns, block_ns          modelled time of a launch, and of a block: so many blocks as all
 *                                multiprocessors hold run at once. A kernel named gaia_spin_N takes N ns
 *   alternate_ms = 0             how long a card stays with a process while others have work too;
 *                                0 = the order of submission over all processes
 *   sample_delay_ms = 0          how late NVML's samples of utilisation are
 *   backed = 1                   device memory is real host memory, taken when touched
 *   shared = 0                   the state may be another user's file: in containers, which are given it
 *   driver, nvml, cuda           versions: 580.95.05, 13.580.95.05, 13000
 *   state                        the shared file; default /dev/shm/gaia-sim-<uid>-<hash of directory>.
 *                                An agent removes it at its end, when nobody has it mapped
 */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_CARDS 16

enum sim_level {
    SIM_INTERNAL = 0,
    SIM_SINGLE = 10,
    SIM_MULTIPLE = 20,
    SIM_HOSTBRIDGE = 30,
    SIM_NODE = 40,
    SIM_SYSTEM = 50
};

struct sim_card {
    unsigned char uuid[16];
    char name[64];
    uint64_t memory;   /* bytes of the board */
    uint64_t reserved; /* of which the driver keeps */
    uint64_t context;  /* of which each process takes for its first context */
    uint32_t domain, bus;
    int32_t major, minor; /* compute capability */
    int32_t numa;
    int32_t pcie_switch; /* cards with the same one are joined by it; -1 = none */
    int32_t speed;       /* CUDA's default order is fastest first */
    uint32_t multiprocessors;
    uint32_t resident; /* blocks that a multiprocessor runs at once */
};

struct sim_config {
    /* what the cards are: a running simulation cannot change it */
    struct {
        struct sim_card card[SIM_CARDS];
        uint32_t count;
        uint32_t nvswitch;
        uint64_t alternate_ms, sample_delay_ms;
        uint8_t links[SIM_CARDS][SIM_CARDS];
        uint8_t level[SIM_CARDS][SIM_CARDS]; /* 255 = derive from switch and NUMA node */
        uint8_t p2p[SIM_CARDS][SIM_CARDS];
    } machine;
    uint64_t kernel_ns, block_ns;
    bool backed, shared;
    int cuda;
    char driver[80], nvml[80];
    char state[4096];
    char problem[512]; /* a sentence when the configuration cannot be used, else empty */
};

/* The configuration of this process; never NULL, see `problem`. */
const struct sim_config *sim_config(void);

/* bytes that programs can have of a card */
static inline uint64_t sim_usable(const struct sim_card *card) {
    return card->memory > card->reserved ? card->memory - card->reserved : 0;
}

/* 64-bit FNV-1a */
uint64_t sim_hash(const void *bytes, uint64_t size, uint64_t seed);

/* Write a UUID as NVML does: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx (41 bytes with the end). */
void sim_uuid_text(const unsigned char uuid[16], char out[41]);

/* The closest common ancestor of two cards on the PCI tree. */
enum sim_level sim_level(unsigned a, unsigned b);

#endif
