// A producer/consumer pipeline: producers write messages of log lines into recycled buffers, consumers check and count them.
//
// Naive: one queue and one pool for all. A buffer lies on the node of the producer that created it, is filled by any producer and
// read by any consumer: most of its traffic crosses nodes. Local: a queue and a pool per node, whose buffers the node's consumers
// create, and which the producers of that node prefer.
#include "channel.hpp"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "records.hpp"

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <pthread.h>
#include <thread>

namespace {

enum Variant { kNaive, kLocal };
const char *const kVariants[] = {"naive", "local", nullptr};
constexpr std::size_t kBuffersPerConsumer = 3;

struct Options {
    common_options common = COMMON_OPTIONS_DEFAULT;
    std::uint64_t producers = 0, messages = 0, bytes = 0;
    std::uint64_t consumers() const { return common.threads - producers; }
};

struct Preset {
    std::uint64_t messages, bytes;
};
// A message of a megabyte exceeds a private cache: what a consumer reads twice comes from memory twice.
const Preset kPresets[] = {{64, 65536}, {384, 1 << 20}, {3000, 1 << 20}, {30000, 1 << 20}};

Options parse(int argc, char **argv) {
    Options options;
    const option_spec specs[] = {
        option_size(&options.common),
        option_choice("variant", &options.common.variant, kVariants, "who shares queues and buffers with whom"),
        option_threads(&options.common),
        option_seed(&options.common),
        option_number("producers", &options.producers, 1, THREADS_MAX, "how many of the threads produce: half, if not given"),
        option_number("messages", &options.messages, 1, 1u << 30, "messages to carry"),
        option_number("bytes", &options.bytes, 1024, 1u << 28, "bytes of a message"),
    };
    const program program = {"pipeline", "producers and consumers of log messages", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    // One of each is the least; a single thread could not wait for itself.
    if (options.common.threads < 2) options.common.threads = 2;
    const Preset &preset = kPresets[options.common.size];
    if (!options.messages) options.messages = preset.messages;
    if (!options.bytes) options.bytes = preset.bytes;
    if (!options.producers) options.producers = options.common.threads / 2;
    if (options.producers >= options.common.threads) {
        fail(EXIT_USAGE, "--producers must leave at least one of %" PRIu64 " threads to consume", options.common.threads);
    }
    return options;
}

// A queue and the pool to which its buffers return.
struct Lane {
    explicit Lane(std::size_t capacity) : queue(capacity) {}
    Queue queue;
    Pool pool;
    std::atomic<int> consumers{0};
};

class Pipeline {
  public:
    explicit Pipeline(const Options &options);
    ~Pipeline();
    // Carries all messages; returns what the consumers counted.
    Statistics run();

  private:
    void produce(std::size_t producer);
    void consume(Statistics &result);
    void fill(Buffer &buffer, std::uint64_t message) const;
    void process(const Buffer &buffer, Statistics &statistics) const;
    std::size_t home_lane() const;

    const Options &options_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::atomic<std::uint64_t> next_message_{0};
    std::atomic<std::uint64_t> producers_left_;
    pthread_barrier_t ready_; // every lane knows its consumers
};

Pipeline::Pipeline(const Options &options) : options_(options), producers_left_(options.producers) {
    const std::size_t lanes = options.common.variant == kLocal ? static_cast<std::size_t>(placement_node_count()) : 1;
    for (std::size_t lane = 0; lane < lanes; lane++) {
        lanes_.push_back(std::make_unique<Lane>(2 * options.consumers()));
    }
    if (options.common.variant == kNaive) lanes_[0]->pool.allow(kBuffersPerConsumer * options.consumers());
    if (pthread_barrier_init(&ready_, nullptr, static_cast<unsigned>(options.common.threads))) fail(EXIT_SYSTEM, "cannot make a barrier");
}

Pipeline::~Pipeline() {
    for (const auto &lane : lanes_) {
        for (Buffer *buffer : lane->pool.drain()) std::free(buffer);
    }
    pthread_barrier_destroy(&ready_);
}

std::size_t Pipeline::home_lane() const {
    return options_.common.variant == kLocal ? static_cast<std::size_t>(placement_current_node()) : 0;
}

std::size_t buffer_bytes(std::size_t capacity) {
    return (sizeof(Buffer) + capacity + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

void Pipeline::fill(Buffer &buffer, std::uint64_t message) const {
    RecordStream records(options_.common.seed, message);
    std::size_t used = 0;
    while (used + kRecordBytesMax <= options_.bytes) used += format_record(records.next(), buffer.text + used);
    buffer.message = message;
    buffer.used = used;
    buffer.hash = hash_bytes(message, buffer.text, used);
}

void Pipeline::process(const Buffer &buffer, Statistics &statistics) const {
    if (hash_bytes(buffer.message, buffer.text, buffer.used) != buffer.hash) {
        fail(EXIT_WRONG_RESULT, "wrong result: message %" PRIu64 " was damaged on its way", buffer.message);
    }
    const char *end = buffer.text + buffer.used;
    for (const char *at = buffer.text; at < end;) {
        Record record;
        at = parse_record(at, end, record);
        if (!at) fail(EXIT_WRONG_RESULT, "wrong result: message %" PRIu64 " holds a line that is no record", buffer.message);
        statistics.add(record);
    }
}

void Pipeline::produce(std::size_t producer) {
    pthread_barrier_wait(&ready_);
    std::size_t lane = home_lane();
    // No thread consumes on this node: share out among the nodes with consumers.
    for (std::size_t tried = producer; lanes_[lane]->consumers.load() == 0; tried++) lane = tried % lanes_.size();
    for (std::uint64_t message = next_message_++; message < options_.messages; message = next_message_++) {
        Buffer *buffer = lanes_[lane]->pool.take();
        if (!buffer) {
            buffer = static_cast<Buffer *>(std::aligned_alloc(PAGE_BYTES, buffer_bytes(options_.bytes)));
            need_memory(buffer, buffer_bytes(options_.bytes));
            buffer->capacity = options_.bytes;
        }
        fill(*buffer, message);
        lanes_[lane]->queue.push(buffer);
    }
    if (--producers_left_ == 0) {
        for (const auto &each : lanes_) each->queue.close();
    }
}

void Pipeline::consume(Statistics &result) {
    Lane &lane = *lanes_[home_lane()];
    lane.consumers++;
    if (options_.common.variant == kLocal) {
        for (std::size_t i = 0; i < kBuffersPerConsumer; i++) {
            Buffer *local_buffer = static_cast<Buffer *>(std::aligned_alloc(PAGE_BYTES, buffer_bytes(options_.bytes)));
            need_memory(local_buffer, buffer_bytes(options_.bytes));
            std::memset(static_cast<void *>(local_buffer), 0, buffer_bytes(options_.bytes));
            local_buffer->capacity = options_.bytes;
            lane.pool.give(local_buffer);
        }
    }
    pthread_barrier_wait(&ready_);
    Statistics statistics;
    while (Buffer *buffer = lane.queue.pop()) {
        process(*buffer, statistics);
        lane.pool.give(buffer);
    }
    result = std::move(statistics);
}

Statistics Pipeline::run() {
    std::vector<Statistics> results(options_.consumers());
    std::vector<std::thread> threads;
    try {
        for (std::size_t i = 0; i < options_.producers; i++) threads.emplace_back([this, i] { produce(i); });
        for (Statistics &result : results) threads.emplace_back([this, &result] { consume(result); });
    } catch (const std::exception &error) {
        fail(EXIT_SYSTEM, "cannot start %" PRIu64 " threads (%s); choose fewer --threads", options_.common.threads, error.what());
    }
    for (std::thread &thread : threads) thread.join();
    Statistics total;
    for (const Statistics &result : results) total.add(result);
    return total;
}

// What the consumers should have counted, straight from the generator: no text, no buffers, no threads.
Statistics expected(const Options &options) {
    Statistics total;
    char line[kRecordBytesMax];
    for (std::uint64_t message = 0; message < options.messages; message++) {
        RecordStream records(options.common.seed, message);
        for (std::size_t used = 0; used + kRecordBytesMax <= options.bytes;) {
            const Record record = records.next();
            used += format_record(record, line);
            total.add(record);
        }
    }
    return total;
}

} // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    std::fprintf(stderr, "pipeline: %s, %" PRIu64 " producers, %" PRIu64 " consumers\n", kVariants[options.common.variant],
                 options.producers, options.consumers());
    try {
        phase("carry");
        Statistics counted;
        {
            Pipeline pipeline(options);
            counted = pipeline.run();
        }
        phase_verify();
        if (!(counted == expected(options))) fail(EXIT_WRONG_RESULT, "wrong result: the counts are not those of the records sent");
        phase(nullptr);
        std::printf("pipeline ok messages=%" PRIu64 " records=%" PRIu64 " checksum=%016" PRIx64 "\n", options.messages, counted.records(),
                    counted.checksum());
    } catch (const std::bad_alloc &) {
        fail(EXIT_SYSTEM, "out of memory; choose a smaller --size");
    }
    return 0;
}
