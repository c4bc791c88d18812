! after.f90: arrays in whole and in parts, allocated and on the stack; results must not depend on call-outs (after_optimisation.rs).
program after
    implicit none
    integer, parameter :: count = 200
    real(8), allocatable :: matrix(:, :), vector(:)
    integer :: i, j, picked(count)
    complex(8) :: turn
    allocate (matrix(count, count), vector(count))
    do j = 1, count
        do i = 1, count
            matrix(i, j) = mod(i*7 + j*3, 11)
        end do
        vector(j) = j
    end do
    vector = matmul(matrix, vector)
    picked = [(mod(i*13, count) + 1, i=1, count)]
    vector = vector(picked) + matrix(3, :)
    turn = (0.5d0, 0.25d0)
    do i = 1, 10
        turn = turn*turn + (0.125d0, 0d0)
    end do
    print '(a, f20.3, i8, 2f10.6)', 'after ', sum(vector), maxloc(vector), turn
    stop 7
end program after
