// Buffers, the pool that recycles them, and the bounded queue that carries them: mutexes and condition variables only.
#ifndef PIPELINE_CHANNEL_HPP
#define PIPELINE_CHANNEL_HPP

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

// One message: a header and text, in one allocation of whole pages. The thread that writes first decides their nodes.
struct Buffer {
    std::uint64_t message;
    std::uint64_t hash; // of the text, by its producer
    std::size_t used;
    std::size_t capacity;
    char text[];
};

// Free buffers, last in first out. Holds at most as many as it was given or allowed to create.
class Pool {
  public:
    // Number of further buffers that the pool may create.
    void allow(std::size_t count) {
        const std::lock_guard<std::mutex> lock(mutex_);
        to_create_ += count;
    }
    // A free buffer; or nullptr: the caller creates one; or waits until one comes back.
    Buffer *take() {
        std::unique_lock<std::mutex> lock(mutex_);
        returned_.wait(lock, [this] { return !free_.empty() || to_create_ > 0; });
        if (free_.empty()) {
            to_create_--;
            return nullptr;
        }
        Buffer *buffer = free_.back();
        free_.pop_back();
        return buffer;
    }
    void give(Buffer *buffer) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            free_.push_back(buffer);
        }
        returned_.notify_one();
    }
    // All buffers that lie in the pool now, which forgets them.
    std::vector<Buffer *> drain() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return std::move(free_);
    }

  private:
    std::mutex mutex_;
    std::condition_variable returned_;
    std::vector<Buffer *> free_;
    std::size_t to_create_ = 0;
};

// First in, first out, at most `capacity` at a time.
class Queue {
  public:
    explicit Queue(std::size_t capacity) : capacity_(capacity) {}
    void push(Buffer *buffer) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            not_full_.wait(lock, [this] { return items_.size() < capacity_; });
            items_.push_back(buffer);
        }
        not_empty_.notify_one();
    }
    // nullptr: closed, and nothing is left.
    Buffer *pop() {
        Buffer *buffer = nullptr;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            not_empty_.wait(lock, [this] { return !items_.empty() || closed_; });
            if (items_.empty()) return nullptr;
            buffer = items_.front();
            items_.pop_front();
        }
        not_full_.notify_one();
        return buffer;
    }
    void close() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            closed_ = true;
        }
        not_empty_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable not_full_, not_empty_;
    std::deque<Buffer *> items_;
    std::size_t capacity_;
    bool closed_ = false;
};

#endif
