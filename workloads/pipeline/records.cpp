// Generating, writing, reading and counting of records.
#include "records.hpp"

#include <cstring>
#include <string_view>

namespace {
constexpr std::string_view kNames[kOperations] = {"GET", "PUT", "LIST", "DELETE"};

std::size_t format_number(std::uint64_t number, char *text) {
    char digits[20];
    std::size_t count = 0;
    do {
        digits[count++] = static_cast<char>('0' + number % 10);
        number /= 10;
    } while (number);
    for (std::size_t i = 0; i < count; i++) text[i] = digits[count - 1 - i];
    return count;
}

// Digits up to `stop`; nullptr when there is anything else.
const char *parse_number(const char *at, const char *end, char stop, std::uint64_t &number) {
    number = 0;
    const char *start = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++) number = number * 10 + static_cast<std::uint64_t>(*at - '0');
    return at > start && at < end && *at == stop ? at + 1 : nullptr;
}

const char *parse_operation(const char *at, const char *end, std::uint32_t &operation) {
    const char *space = static_cast<const char *>(std::memchr(at, ' ', static_cast<std::size_t>(end - at)));
    if (!space) return nullptr;
    const std::string_view name(at, static_cast<std::size_t>(space - at));
    for (operation = 0; operation < kOperations; operation++) {
        if (name == kNames[operation]) return space + 1;
    }
    return nullptr;
}
} // namespace

Record RecordStream::next() {
    const std::uint64_t bits = rng_next(&rng_);
    time_us_ += bits & 0xff;
    const std::uint32_t scale = static_cast<std::uint32_t>(bits >> 8) & 15;
    return {
        time_us_,
        static_cast<std::uint32_t>(bits >> 12) & 0xffff,
        static_cast<std::uint32_t>(bits >> 28) & 3,
        static_cast<std::uint32_t>(bits >> 30) & 0xfffff,
        (1u << scale) + (static_cast<std::uint32_t>(bits >> 50) & ((1u << scale) - 1)),
    };
}

void Statistics::add(const Record &record) {
    records_++;
    times_ += record.time_us;
    bytes_[record.operation] += record.bytes;
    std::size_t bucket = 0;
    for (std::uint32_t latency = record.latency_us; latency > 1 && bucket + 1 < kLatencyBuckets; latency >>= 1) bucket++;
    latencies_[record.operation][bucket]++;
    users_[record.user]++;
}

void Statistics::add(const Statistics &other) {
    records_ += other.records_;
    times_ += other.times_;
    for (std::size_t operation = 0; operation < kOperations; operation++) {
        bytes_[operation] += other.bytes_[operation];
        for (std::size_t i = 0; i < kLatencyBuckets; i++) latencies_[operation][i] += other.latencies_[operation][i];
    }
    for (std::size_t user = 0; user < kUsers; user++) users_[user] += other.users_[user];
}

std::uint64_t Statistics::checksum() const {
    std::uint64_t hash = mix64(records_) ^ times_;
    hash = hash_bytes(hash, bytes_.data(), sizeof bytes_);
    hash = hash_bytes(hash, latencies_.data(), sizeof latencies_);
    return hash_bytes(hash, users_.data(), users_.size() * sizeof users_[0]);
}

std::size_t format_record(const Record &record, char *text) {
    char *at = text;
    at += format_number(record.time_us, at);
    *at++ = ' ';
    at += format_number(record.user, at);
    *at++ = ' ';
    const std::string_view name = kNames[record.operation];
    std::memcpy(at, name.data(), name.size());
    at += name.size();
    *at++ = ' ';
    at += format_number(record.bytes, at);
    *at++ = ' ';
    at += format_number(record.latency_us, at);
    *at++ = '\n';
    return static_cast<std::size_t>(at - text);
}

const char *parse_record(const char *at, const char *end, Record &record) {
    std::uint64_t user = 0, bytes = 0, latency = 0;
    if (!(at = parse_number(at, end, ' ', record.time_us))) return nullptr;
    if (!(at = parse_number(at, end, ' ', user)) || user >= kUsers) return nullptr;
    if (!(at = parse_operation(at, end, record.operation))) return nullptr;
    if (!(at = parse_number(at, end, ' ', bytes)) || bytes > UINT32_MAX) return nullptr;
    if (!(at = parse_number(at, end, '\n', latency)) || latency > UINT32_MAX) return nullptr;
    record.user = static_cast<std::uint32_t>(user);
    record.bytes = static_cast<std::uint32_t>(bytes);
    record.latency_us = static_cast<std::uint32_t>(latency);
    return at;
}
