// What the messages say: lines of an access log, `time user operation bytes latency`. Record r of message m is a function of the
// seed, m and r alone, so that what the consumers count can be computed without any message.
#ifndef PIPELINE_RECORDS_HPP
#define PIPELINE_RECORDS_HPP

#include "random.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

constexpr std::size_t kOperations = 4;
constexpr std::size_t kUsers = 65536;
constexpr std::size_t kLatencyBuckets = 20;
constexpr std::size_t kRecordBytesMax = 64;

struct Record {
    std::uint64_t time_us;
    std::uint32_t user;
    std::uint32_t operation;
    std::uint32_t bytes;
    std::uint32_t latency_us;
};

// Draws the records of one message in order.
class RecordStream {
  public:
    RecordStream(std::uint64_t seed, std::uint64_t message) : rng_(rng_of(seed, message)), time_us_(message * 1000000) {}
    Record next();

  private:
    rng rng_;
    std::uint64_t time_us_;
};

// Counts over records; adding is commutative, so the order of messages does not matter.
class Statistics {
  public:
    Statistics() : users_(kUsers, 0) {}
    void add(const Record &record);
    void add(const Statistics &other);
    bool operator==(const Statistics &) const = default;
    std::uint64_t records() const { return records_; }
    std::uint64_t checksum() const;

  private:
    std::uint64_t records_ = 0;
    std::uint64_t times_ = 0;
    std::array<std::uint64_t, kOperations> bytes_{};
    std::array<std::array<std::uint64_t, kLatencyBuckets>, kOperations> latencies_{};
    std::vector<std::uint32_t> users_;
};

// Appends one line to `text`, which has room for kRecordBytesMax bytes; returns its length.
std::size_t format_record(const Record &record, char *text);
// Reads the line that begins at `at`; returns where the next begins, or nullptr when the line is none of ours.
const char *parse_record(const char *at, const char *end, Record &record);

#endif
